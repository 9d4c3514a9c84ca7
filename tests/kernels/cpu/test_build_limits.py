"""Building the C++ kernels: a compiler that takes too long, builds that were killed, and names."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import pytest

from attnctl.findings import Verdict
from attnctl.kernels.cpu.build import CLANG_THREADS, build
from attnctl.kernels.cpu.build_compilers import Compiler, compilers, told
from attnctl.kernels.cpu.build_folders import LEFT_AFTER_S, clear

PATH = os.environ["PATH"]
REAL = compilers({"PATH": PATH})[0][0]


class Script:
    """A compiler that is a shell script, and keeps what it was asked to compile."""

    def __init__(self, folder: Path) -> None:
        self.path, self._folder, self._asked = folder / "cc", folder, folder / "asked"

    def does(self, text: str, version: str = "a compiler 1.0", macros: str = "") -> Script:
        """text: what it does with `$@`; macros: names that it predefines, all as 1."""
        (self._folder / "version").write_text(version + "\n")
        (self._folder / "macros").write_text(
            "".join(f"#define {name} 1\n" for name in macros.split())
        )
        self.path.write_text(
            f"#!/bin/sh\n[ $1 = --version ] && exec cat {self._folder}/version\n"
            f'case "$*" in *-dM*) exec cat {self._folder}/macros;; esac\n'
            f'echo "$@" >> {self._asked}\n{text}\n'
        )
        self.path.chmod(0o755)
        return self

    @property
    def asked(self) -> list[list[str]]:
        text = self._asked.read_text() if self._asked.exists() else ""
        return [shlex.split(line) for line in text.splitlines()]

    @property
    def environ(self) -> dict[str, str]:
        """An environment with this compiler alone, under two names."""
        (self._folder / "gcc").unlink(missing_ok=True)
        (self._folder / "gcc").symlink_to(self.path)
        folder = str(self._folder)
        return {"PATH": folder, "XDG_CACHE_HOME": f"{folder}/cache", "TMPDIR": folder}


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def of(script: Script) -> Compiler:
    return told((str(script.path),))


def test_a_compiler_that_takes_too_long_is_the_last_that_is_tried(
    source: Path, tmp_path: Path, script: Script
) -> None:
    """Neither with fewer flags, nor elsewhere, nor under another name; and it is said why."""
    environ = script.does("exec /bin/sleep 60").environ
    start = time.monotonic()
    made = build(source, ("-DX",), environ, limit_s=0.5)
    assert time.monotonic() - start < 20
    assert len(script.asked) == 1
    assert made.path is None
    assert made.finding.verdict is Verdict.UNMET
    assert made.finding.found.startswith(f"{script.path}: it had not compiled tiny-")
    assert made.finding.found.endswith(".so after 0.5 s")
    assert made.finding.fix.startswith("try again when this machine has less to do")
    assert list((tmp_path / "cache" / "attnctl").iterdir()) == []


def test_what_a_late_compiler_started_ends_with_it(
    source: Path, tmp_path: Path, script: Script
) -> None:
    """GCC's command only starts the compiler proper, and waits."""
    text = f"(/bin/sleep 2; echo late > {tmp_path}/late) &\nwait"
    build(source, (), script.does(text).environ, limit_s=0.5)
    time.sleep(3)
    assert not (tmp_path / "late").exists()


def test_a_lesser_build_that_is_there_serves_where_the_better_one_takes_too_long(
    source: Path, script: Script
) -> None:
    """It was made without OpenMP, when the compiler refused that."""
    environ = script.does(
        f'case "$*" in *-fopenmp*) exit 1;; esac\nPATH={PATH} exec {REAL} "$@"'
    ).environ
    first = build(source, ("-DX",), environ)
    assert first.path is not None
    script.does("exec /bin/sleep 60")
    second = build(source, ("-DX",), environ, limit_s=0.5)
    assert (second.path, second.cached) == (first.path, True)


def left(folder: Path, name: str, age_s: float) -> Path:
    """What a build leaves that was killed so long ago."""
    path = folder / name
    path.mkdir(parents=True)
    (path / "made.so").write_bytes(b"the first half")
    when = time.time() - age_s
    os.utime(path, (when, when))
    return path


HASH = "0123456789abcdef0123"


def test_a_build_clears_up_what_killed_ones_left(
    source: Path, tmp_path: Path, script: Script
) -> None:
    """A folder of a day ago goes; one of an hour ago may be of a build that goes on."""
    cache = tmp_path / "cache" / "attnctl"
    cache.mkdir(parents=True, mode=0o700)
    old = left(cache, f"paged-{HASH}a1b2c3d_", LEFT_AFTER_S + 60)
    young = left(cache, f"paged-{HASH}a1b2c3d4", 3600)
    made = build(source, (), script.does(f'PATH={PATH} exec {REAL} "$@"').environ)
    assert made.path is not None
    assert not old.exists()
    assert (young / "made.so").read_bytes() == b"the first half"


def test_what_is_no_folder_of_a_build_is_never_cleared(tmp_path: Path) -> None:
    """Shared objects, folders with other names, files, and links to folders, however old."""
    kept = [left(tmp_path, name, 2 * LEFT_AFTER_S) for name in ("notes", f"paged-{HASH}", "a-b")]
    elsewhere = left(tmp_path / "elsewhere", f"paged-{HASH}a1b2c3d4", 2 * LEFT_AFTER_S)
    link = tmp_path / f"paged-{HASH}linked00"
    link.symlink_to(elsewhere)
    file = tmp_path / f"paged-{HASH}a1b2c3d5"
    file.write_bytes(b"")
    os.utime(file, (1, 1))
    clear(tmp_path)
    assert all((path / "made.so").exists() for path in (*kept, elsewhere, link))
    assert file.exists()


def test_clearing_a_folder_that_is_gone_is_nothing(tmp_path: Path) -> None:
    """Another process may have removed it."""
    clear(tmp_path / "gone")


@pytest.mark.parametrize(
    ("version", "macros", "clang", "intel"),
    [
        ("Debian clang version 14.0.6", "", True, False),
        ("Apple clang version 15.0.0 (clang-1500.3.9.4)", "", True, False),
        (
            "cc (Debian 12.2.0) 12.2.0\nCopyright (C) Free Software Foundation, Inc.",
            "",
            *[False] * 2,
        ),
        ("Intel(R) oneAPI DPC++/C++ Compiler 2024.2.0", "__clang__ __INTEL_LLVM_COMPILER", 1, 1),
        ("Arm C/C++/Fortran Compiler version 24.04 (based on LLVM 18)", "__clang__", 1, 0),
        ("another compiler 3.1", "__EDG__ __clang_like__", 0, 0),
    ],
    ids=["Debian", "Apple", "GCC", "icpx", "armclang", "another"],
)
def test_a_compiler_is_clang_by_what_it_predefines_whatever_its_name(
    script: Script, version: str, macros: str, clang: bool, intel: bool
) -> None:
    """Words suffice for GCC and LLVM's own; its first line stands in the finding."""
    found = of(script.does("exit 1", version, macros))
    assert found == (version.splitlines()[0], clang, intel)


def test_gcc_is_asked_for_no_macros(script: Script) -> None:
    """Each start of a program pays for every question."""
    version = "cc (Debian 12.2.0) 12.2.0\nCopyright (C) Free Software Foundation, Inc."
    assert of(script.does("exit 1", version, "__clang__")).clang is False


def test_intels_compiler_is_given_clangs_flags_and_exact_arithmetic(
    source: Path, script: Script
) -> None:
    """OpenMP's calls carried out by what is there; masks are infinite, and must stay so."""
    text = (
        'for word in "$@"; do shift; case $word in -Xclang|-fopenmp|-fp-model=*) ;; '
        f'*) set -- "$@" "$word";; esac; done\nPATH={PATH} exec {REAL} "$@"'
    )
    version = "Intel(R) oneAPI DPC++/C++ Compiler 2024.2.0 (2024.2.0.20240602)"
    environ = script.does(text, version, "__clang__ __INTEL_LLVM_COMPILER").environ
    made = build(source, ("-DX",), environ)
    assert made.finding.found == f"{version}, -DX -Xclang -fopenmp"
    (line,) = script.asked
    assert line[0] == "-fp-model=precise"
    assert line.index("-fp-model=precise") < line.index("-ffp-contract=fast")
    assert str(CLANG_THREADS) in line
