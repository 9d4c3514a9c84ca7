"""The shared object of a C++ source: from the cache, or made by the system's compiler.

The cache is keyed by the source, the flags and the compiler's version; a build goes to a name of
its own and is then renamed, so that builds at the same time do not meet.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from attnctl.findings import Finding, met, unmet
from attnctl.probe.host import Host, HostError, env

CODE = "cpu_kernel"
WANTED = "the C++ kernel, built by the system's compiler"

COMPILE_TIMEOUT_S = 300
_FLAGS = (
    "-x c++ -std=c++17 -O3 -ffp-contract=fast -fno-exceptions -fno-rtti -fno-math-errno "
    "-fPIC -shared -w"
)

_INCLUDE = re.compile(rb'^#include "([\w.]+)"', re.MULTILINE)

_X86 = {"avx2": "-mavx2", "fma": "-mfma", "f16c": "-mf16c"}
# GCC's vectors of 64 bytes need all of these to be single instructions
_X86_512 = {
    "avx512f": "-mavx512f",
    "avx512bw": "-mavx512bw",
    "avx512dq": "-mavx512dq",
    "avx512vl": "-mavx512vl",
}


class Built(msgspec.Struct, frozen=True):
    """path: the shared object, None where nothing could be built; cached: it was there already."""

    path: str | None
    finding: Finding
    cached: bool = False


def isa_flags(arch: str | None, isa: Iterable[str]) -> tuple[str, ...]:
    """The compiler's flags for instructions that the probe found usable, and no others."""
    isa = frozenset(isa)
    if arch == "x86_64":
        flags = tuple(flag for name, flag in _X86.items() if name in isa)
        wide = isa.issuperset(_X86_512) and isa.issuperset(_X86)
        return flags + (tuple(_X86_512.values()) if wide else ())
    if arch == "aarch64":
        return ("-mcpu=native",)
    return ()


def compilers(environ: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Commands to try, CC first; only those that the PATH has."""
    wanted = [tuple(shlex.split(environ["CC"]))] if environ.get("CC", "").strip() else []
    wanted += [("cc",), ("gcc",), ("clang",)]
    path = environ.get("PATH", os.defpath)
    found = [(shutil.which(command[0], path=path), command[1:]) for command in wanted]
    return list(dict.fromkeys((first, *rest) for first, rest in found if first))


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """The first folder that can be written and that no other user can write to."""
    choices = []
    if environ.get("XDG_CACHE_HOME"):
        choices.append(Path(environ["XDG_CACHE_HOME"]) / "attnctl")
    elif environ.get("HOME"):
        choices.append(Path(environ["HOME"]) / ".cache" / "attnctl")
    temporary = environ.get("TMPDIR") or tempfile.gettempdir()
    choices.append(Path(temporary) / f"attnctl-{os.geteuid()}")
    return next((folder for folder in choices if _usable(folder)), None)


def build_here(host: Host, source: Path) -> Built:
    """The shared object of `source` for this machine's usable instructions."""
    from attnctl.probe.cpu import probe_cpu
    from attnctl.probe.ledger import Ledger

    cpu = probe_cpu(host, Ledger())
    names = ("CC", "PATH", "XDG_CACHE_HOME", "HOME", "TMPDIR")
    return build(source, isa_flags(cpu.arch, cpu.isa), _environ(host, names))


def build(source: Path, flags: tuple[str, ...], environ: Mapping[str, str]) -> Built:
    """The shared object of `source`; each compiler is tried with these flags, then with fewer."""
    commands = compilers(environ)
    if not commands:
        return _failed("there is no compiler: CC, cc, gcc and clang were looked for")
    folder = cache_folder(environ)
    if folder is None:
        return _failed("no folder for the build can be written", "set XDG_CACHE_HOME")
    text, problem = _text(source), ""
    for command in commands:
        version = _version(command)
        # without OpenMP it runs on one thread; without the instruction flags it is slow and right
        for extra in dict.fromkeys(((*flags, "-fopenmp"), ("-fopenmp",), flags, ())):
            line = (*command, *_FLAGS.split(), *extra)
            target = folder / f"{source.stem}-{_key(text, line, version)}.so"
            said = f"{version or command[0]}, {' '.join(extra) or 'no flags'}"
            if target.is_file():
                return Built(str(target), met(CODE, WANTED, said, str(target)), cached=True)
            failure = _compile(line, source, target)
            if not failure:
                return Built(str(target), met(CODE, WANTED, said, str(target)))
            problem = problem or f"{' '.join(command)}: {failure}"
    return _failed(problem)


def _text(source: Path) -> bytes:
    """The source and the files beside it that it includes: what a build depends on."""
    text = source.read_bytes()
    beside = [source.with_name(name.decode()) for name in _INCLUDE.findall(text)]
    return b"\0".join([text, *(path.read_bytes() for path in beside)])


def _environ(host: Host, names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            value = env(host, name)
        except HostError:
            continue
        if value is not None:
            found[name] = value
    return found


def _failed(found: str, fix: str = "install gcc or clang, or set CC to a compiler") -> Built:
    return Built(None, unmet(CODE, WANTED, found, "the system's compiler", fix))


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except OSError:
        return False
    shared = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    # what lies here is loaded as code: it must be this user's alone
    return state.st_uid == os.geteuid() and not shared and os.access(folder, os.W_OK | os.X_OK)


def _version(command: tuple[str, ...]) -> str:
    try:
        answer = subprocess.run(
            [*command, "--version"], capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = answer.stdout.decode("utf-8", "replace").splitlines()
    return lines[0].strip() if lines else ""


def _key(text: bytes, line: tuple[str, ...], version: str) -> str:
    parts = [text, *(part.encode() for part in line), version.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _compile(line: tuple[str, ...], source: Path, target: Path) -> str:
    """What went wrong, "" where the target is there."""
    handle, name = tempfile.mkstemp(suffix=".so", prefix=target.stem, dir=target.parent)
    os.close(handle)
    made = Path(name)
    try:
        answer = subprocess.run(
            [*line, "-o", name, str(source)],
            capture_output=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if answer.returncode == 0 and made.stat().st_size:
            made.replace(target)
            return ""
        said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
        return next((line for line in said if "error" in line), "".join(said[:1])) or (
            f"exit status {answer.returncode} and no file"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        made.unlink(missing_ok=True)
