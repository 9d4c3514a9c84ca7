"""Building the C++ kernels where a disk is full or a folder cannot be written: one try."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from attnctl.findings import Verdict
from attnctl.kernels.cpu.build import Built, build
from attnctl.kernels.cpu.build_compilers import compilers
from attnctl.kernels.cpu.build_folders import LEAST_ROOM, cache_folders, no_room
from tests.commands.running import ROOT

PATH = os.environ["PATH"]
REAL = compilers({"PATH": PATH})[0][0]
FULL = "echo 'as: fatal error: error writing to x.s: No space left on device' >&2; exit 1"


class Compiler:
    """A shell script that keeps what it was asked to compile."""

    def __init__(self, folder: Path) -> None:
        self.path, self._asked = folder / "compiler", folder / "asked"

    def does(self, text: str) -> Compiler:
        """text: what it does with `$@`; REAL compiles."""
        self.path.write_text(
            f"#!/bin/sh\n[ $1 = --version ] && exec {REAL} $1\n"
            f'echo "$TMPDIR $LC_ALL $@" >> {self._asked}\n{text}\n'
        )
        self.path.chmod(0o755)
        return self

    @property
    def asked(self) -> list[str]:
        return self._asked.read_text().splitlines() if self._asked.exists() else []

    def environ(self, folder: Path) -> dict[str, str]:
        """An environment with this compiler alone, and two folders to build in."""
        (folder / "tmp").mkdir(exist_ok=True)
        places = {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
        return {"CC": str(self.path), "PATH": "", **places}


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path)


def places(folder: Path) -> tuple[str, str]:
    """The two folders of Compiler.environ."""
    return str(folder / "cache" / "attnctl"), str(folder / "tmp" / f"attnctl-{os.geteuid()}")


def test_a_full_disk_ends_the_build_with_the_first_compiler_and_flags(
    source: Path, tmp_path: Path, compiler: Compiler
) -> None:
    """Each folder is tried once, and the sentence names both, why, and what to do."""
    environ = compiler.does(FULL).environ(tmp_path)
    (tmp_path / "clang").symlink_to(compiler.path)
    made = build(source, ("-DX",), {**environ, "PATH": str(tmp_path)})
    assert len(compiler.asked) == 2
    assert made.path is None
    assert made.finding.verdict is Verdict.UNMET
    for folder in places(tmp_path):
        assert f"{folder}: cannot write the build: as: fatal error" in made.finding.found
        assert list(Path(folder).iterdir()) == []
    assert "XDG_CACHE_HOME" in made.finding.fix


def test_a_limit_on_the_size_of_files_is_no_room_either(
    source: Path, tmp_path: Path, compiler: Compiler
) -> None:
    """The system's compiler is killed by a signal for what a full disk gives as an error."""
    environ = compiler.does(f'exec {REAL} "$@"').environ(tmp_path)
    code = (
        "import os, resource, sys\n"
        "from pathlib import Path\n"
        "from attnctl.kernels.cpu.build import build\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))\n"
        "print(build(Path(sys.argv[1]), ('-DX',), dict(os.environ)).finding.found)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(source)],
        # some Pythons leave half a compiled module behind where a file may not grow
        env={**environ, "PATH": PATH, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.startswith("no folder takes the build: "), ran.stderr
    assert ran.stdout.count("File size limit exceeded") == 2
    assert len(compiler.asked) == 2


def test_a_folder_that_is_full_is_not_tried_with_other_flags(
    source: Path, tmp_path: Path, compiler: Compiler
) -> None:
    """Where the compiler refuses OpenMP too, the other folder alone is asked for again."""
    cache = places(tmp_path)[0]
    compiler.does(
        f'case "$*" in *{cache}*) {FULL};; *-fopenmp*) exit 1;; esac\nPATH={PATH} exec {REAL} "$@"'
    )
    made = build(source, ("-DX",), compiler.environ(tmp_path))
    assert Path(made.path or "").parent == Path(places(tmp_path)[1])
    assert made.finding.found.endswith(", -DX")
    assert sum(cache in line for line in compiler.asked) == 1


def test_a_lesser_build_that_is_there_serves_where_no_new_one_can_be_made(
    source: Path, tmp_path: Path, compiler: Compiler
) -> None:
    """It was made without OpenMP, and is loaded from the folder that is full now."""
    compiler.does(f'case "$*" in *-fopenmp*) exit 1;; esac\nPATH={PATH} exec {REAL} "$@"')
    first = build(source, ("-DX",), compiler.environ(tmp_path))
    assert first.path is not None
    second = build(source, ("-DX",), compiler.does(FULL).environ(tmp_path))
    assert (second.path, second.cached) == (first.path, True)


def test_a_folder_that_cannot_be_written_is_named_before_any_compiler_runs(
    source: Path, tmp_path: Path, compiler: Compiler
) -> None:
    """Both lie below a file; another user's is no better."""
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file")
    environ = compiler.does(FULL).environ(tmp_path)
    made = build(source, (), {**environ, "XDG_CACHE_HOME": below, "TMPDIR": below})
    assert made.finding.found.count(f"{below}/attnctl") == 2
    assert "Not a directory" in made.finding.found
    assert compiler.asked == []


def test_what_a_compiler_leaves_between_goes_where_the_build_goes(
    source: Path, tmp_path: Path, compiler: Compiler
) -> None:
    """A full /tmp does not stop a build in a cache that has room; messages are in English."""
    made = build(source, (), compiler.does(f'exec {REAL} "$@"').environ(tmp_path))
    assert made.path is not None
    assert len(list(Path(made.path).parent.iterdir())) == 1
    between, language, *line = shlex.split(compiler.asked[0])
    assert Path(between).parent == Path(made.path).parent
    assert language == "C"
    assert line[line.index("-o") + 1].startswith(between)


def statvfs(blocks: int, free: int, available: int, flags: int = 0) -> os.statvfs_result:
    """What a file system of 4 KB blocks says of itself."""
    return os.statvfs_result((4096, 4096, blocks, free, available, 9, 9, 9, flags, 255))


def test_no_compiler_begins_where_a_build_has_no_room() -> None:
    """Blocks kept back for the system's own user count for that user alone."""
    enough = LEAST_ROOM // 4096
    assert no_room(statvfs(1 << 20, enough, enough), user=1000) == ""
    short = no_room(statvfs(1 << 20, enough, enough - 1), user=1000)
    assert short == "4.2 MB are free, and a build takes 4.2"
    assert no_room(statvfs(1 << 20, enough, 0), user=0) == ""
    assert no_room(statvfs(1 << 20, 0, 0), user=0).startswith("0.0 MB are free")
    assert no_room(statvfs(0, 0, 0), user=1000) == ""


def test_each_folder_says_why_nothing_is_loaded_from_it(tmp_path: Path) -> None:
    """One that others may write to, and one that is fit."""
    (tmp_path / "attnctl").mkdir()
    (tmp_path / "attnctl").chmod(0o777)
    found = cache_folders({"XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)})
    assert list(found.values()) == ["others may write to it", ""]


def test_a_build_that_is_found_needs_no_room(source: Path, tmp_path: Path) -> None:
    """It is looked for before any folder is written to."""
    environ = {"PATH": PATH, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first: Built = build(source, (), environ)
    folder = Path(first.path or "").parent
    before = folder.stat().st_mtime_ns
    assert build(source, (), environ).cached
    assert folder.stat().st_mtime_ns == before
