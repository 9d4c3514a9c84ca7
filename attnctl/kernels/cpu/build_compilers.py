"""The system's compilers: which there are, and what each says of itself."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

ANSWER_LIMIT_S = 30

_MACRO = re.compile(r"^#define (__clang__|__INTEL_LLVM_COMPILER)\b", re.MULTILINE)


class Compiler(NamedTuple):
    """version: the first line of what it says of it, "" where it does not answer.

    clang: it takes Clang's flags, under whatever name it goes; intel: it is Intel's.
    """

    version: str
    clang: bool = False
    intel: bool = False


def compilers(environ: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Commands to try, CC first; only those that the PATH has."""
    wanted = [_words(environ.get("CC", "")), ("cc",), ("gcc",), ("clang",)]
    path = environ.get("PATH", os.defpath)
    found = [(shutil.which(command[0], path=path), command[1:]) for command in wanted if command]
    return list(dict.fromkeys((first, *rest) for first, rest in found if first))


def told(command: tuple[str, ...]) -> Compiler:
    """What a command compiles as.

    GCC and LLVM's Clang say who they are in words; vendors' own name neither, and are asked for
    the macros that they predefine.
    """
    said = _answer((*command, "--version"))
    version = next(iter(said.splitlines()), "").strip()
    if "Free Software Foundation" in said or "clang" in version:
        return Compiler(version, clang="clang" in version)
    macros = set(_MACRO.findall(_answer((*command, *_MACROS)))) if said else ()
    return Compiler(version, "__clang__" in macros, "__INTEL_LLVM_COMPILER" in macros)


_MACROS = ("-x", "c++", "-dM", "-E", os.devnull)


def _words(command: str) -> tuple[str, ...]:
    """A command as a shell takes it apart; none where its quotes do not end."""
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return ()


def _answer(line: tuple[str, ...]) -> str:
    """What a command prints; "" where it cannot be started or takes too long."""
    try:
        answer = subprocess.run(line, capture_output=True, timeout=ANSWER_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.decode("utf-8", "replace")
