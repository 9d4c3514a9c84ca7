"""Where builds of the C++ kernels are kept, and what is made of those that are damaged."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from attnctl.kernels.cpu.build import build, compilers
from attnctl.kernels.cpu.build_folders import cache_folder

PATH = os.environ["PATH"]


def test_a_home_that_cannot_be_written_leaves_the_temporary_folder(tmp_path: Path) -> None:
    """Where .cache is a file, the build goes to a private folder under TMPDIR."""
    (tmp_path / ".cache").write_text("")
    found = cache_folder({"HOME": str(tmp_path), "TMPDIR": str(tmp_path)})
    assert found == tmp_path / f"attnctl-{os.geteuid()}"
    assert found.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path: Path) -> None:
    """What is loaded as code does not come from a shared folder."""
    shared = tmp_path / "attnctl"
    shared.mkdir()
    shared.chmod(0o777)
    found = cache_folder({"XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)})
    assert found == tmp_path / f"attnctl-{os.geteuid()}"


def elsewhere(source: Path, tmp_path: Path) -> tuple[bytes, Path, dict[str, str]]:
    """A build, and where the same one is looked for in a cache that nothing was loaded from."""
    environ = {"PATH": PATH, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = Path(build(source, (), environ).path or "")
    environ["XDG_CACHE_HOME"] = str(tmp_path / "other")
    place = tmp_path / "other" / "attnctl" / first.name
    place.parent.mkdir(mode=0o700, parents=True)
    return first.read_bytes(), place, environ


@pytest.mark.parametrize("left", [0, 100, -1], ids=["empty", "short", "a byte less"])
def test_a_file_that_was_cut_short_is_built_anew(source: Path, tmp_path: Path, left: int) -> None:
    """By a full disk or a lost one: what is left may end the process that maps it."""
    text, place, environ = elsewhere(source, tmp_path)
    place.write_bytes(text[:left])
    again = build(source, (), environ)
    assert (again.path, again.cached) == (str(place), False)
    assert len(place.read_bytes()) == len(text)
    assert ctypes.CDLL(str(place)).answer() == 42


def test_a_whole_file_is_taken(source: Path, tmp_path: Path) -> None:
    """The same bytes in another folder."""
    text, place, environ = elsewhere(source, tmp_path)
    place.write_bytes(text)
    assert build(source, (), environ).cached is True


def test_a_file_that_cannot_be_loaded_is_built_anew(source: Path, tmp_path: Path) -> None:
    """Whole, with its hash behind it, and of no format that this system loads."""
    _, place, environ = elsewhere(source, tmp_path)
    text = b"of another machine"
    place.write_bytes(text + hashlib.sha256(text).digest())
    assert build(source, (), environ).cached is False
    assert ctypes.CDLL(str(place)).answer() == 42


def test_a_folder_that_is_full_leaves_the_next(
    source: Path, tmp_path: Path, script: Callable[[str, str], Path]
) -> None:
    """A compiler that finds no room there is asked again in the temporary folder, alike."""
    real = compilers({"PATH": PATH})[0][0]
    full = script(
        "full",
        'case "$*" in *cache/attnctl/*) echo "as: fatal: No space left on device" >&2; exit 1;; '
        f'esac\nPATH={PATH} exec {real} "$@"',
    )
    (tmp_path / "other").mkdir()
    environ = {
        "CC": str(full),
        "PATH": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path / "other"),
    }
    made = build(source, ("-DX",), environ)
    assert Path(made.path or "").parent == tmp_path / "other" / f"attnctl-{os.geteuid()}"
    assert made.finding.found.endswith(", -DX -fopenmp")


def test_a_relative_cache_is_ignored(tmp_path: Path) -> None:
    """As the specification of XDG_CACHE_HOME says: it would follow the working directory."""
    environ = {"XDG_CACHE_HOME": "here", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    assert cache_folder(environ) == tmp_path / ".cache" / "attnctl"


def test_a_home_shared_by_processors_has_a_build_for_each(source: Path, tmp_path: Path) -> None:
    """What -mcpu=native means is another thing on each."""
    environ = {"PATH": PATH, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first, second = (build(source, (), environ, name).path for name in ("one", "another"))
    assert first != second
