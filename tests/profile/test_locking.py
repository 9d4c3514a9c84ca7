"""Two writers of one profile: one waits for the other, so that nothing of either is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attnctl.exits import InputError
from attnctl.profile.document import read_profile
from attnctl.profile.locking import locked
from attnctl.profile.places import folder
from attnctl.profile.store import file_name, rewrite, save
from attnctl.profile.values import Profile
from attnctl.tune.store import store
from tests.commands.running import ROOT
from tests.profile.factory import GRID, profile, write

ADDS = """
import sys
from tests.profile.factory import GRID, profile
from attnctl.profile.store import save
from attnctl.tune.store import store
document, environ = profile(grid=GRID[1:2]), {"XDG_DATA_HOME": sys.argv[2]}
print("ready", flush=True)
if sys.argv[1] == "own":
    save(document, environ)
else:
    store(sys.argv[1], document, environ)
print("added", flush=True)
"""
PATIENCE_S = 0.5
"""Seconds in which a writer that did not wait would long have written."""


class Adding:
    """A process that adds a point to a file: as a tune into FILE does, or to the user's own."""

    def __init__(self, to: str, home: Path) -> None:
        words = [sys.executable, "-c", ADDS, to, str(home)]
        self._process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def has_ended(self) -> bool:
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        self._process.wait(120)
        assert self._process.stdout is not None
        self._process.stdout.close()


def places(path: Path) -> set[tuple[str, int, int, int]]:
    (entry,) = read_profile(path).entries
    return {point.place for point in entry.points}


@pytest.mark.parametrize("how", ["elsewhere", "by a link", "tune into one's own", "one's own"])
def test_a_file_that_is_being_pruned_is_added_to_afterwards(tmp_path: Path, how: str) -> None:
    """Wherever it lies, and by whatever name the two call it."""
    environ = {"XDG_DATA_HOME": str(tmp_path)}
    own = how.endswith("own")
    home = folder(environ)
    assert home is not None
    where = home if own else tmp_path
    where.mkdir(parents=True, exist_ok=True)
    name = file_name(profile())
    path = write(where / name, profile(grid=GRID[:1]))
    pruned = path
    if how == "by a link":
        (tmp_path / "links").mkdir()
        pruned = tmp_path / "links" / "p.json"
        pruned.symlink_to(path)
    adding: list[Adding] = []

    def slowly(found: Profile) -> Profile:
        adding.append(Adding("own" if how == "one's own" else str(path), tmp_path))
        assert adding[0].line() == "ready"
        assert not adding[0].has_ended()
        return found

    rewrite(str(pruned), slowly, environ)
    assert adding[0].line() == "added"
    adding[0].end()
    assert places(path) == {GRID[0], GRID[1]}


def test_a_lock_outside_of_ones_own_folder_leaves_nothing(tmp_path: Path) -> None:
    """The folder itself is locked; in one's own there is a file for it."""
    environ = {"XDG_DATA_HOME": str(tmp_path / "data")}
    elsewhere = tmp_path / "else"
    elsewhere.mkdir()
    store(str(elsewhere / "p.json"), profile(grid=GRID[:1]), environ)
    rewrite(str(elsewhere / "p.json"), lambda found: found, environ)
    assert [one.name for one in elsewhere.iterdir()] == ["p.json"]
    own = save(profile(grid=GRID[:1]), environ)
    assert {one.name for one in own.parent.iterdir()} == {own.name, ".lock"}


def test_a_folder_that_is_not_there_cannot_be_written(tmp_path: Path) -> None:
    """Said in one sentence that names it; it is not made."""
    with (
        pytest.raises(InputError, match=r"none cannot be written: No such file"),
        locked(tmp_path / "none" / "p.json", {}),
    ):
        pass
    assert not (tmp_path / "none").exists()
