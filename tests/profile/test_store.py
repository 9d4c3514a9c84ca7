"""The user's own profiles: where they are kept, and that nothing of two writers is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from attnctl.exits import InputError
from attnctl.profile.document import read_profile
from attnctl.profile.keys import ANY, Versions
from attnctl.profile.places import folder, json_files, user_files
from attnctl.profile.store import file_name, remove, save
from attnctl.tune.store import store
from tests.commands.running import ROOT
from tests.profile.factory import GRID, profile

WRITER = """
import sys
from tests.profile.factory import GRID, profile
from attnctl.profile.store import save
documents = [profile(grid=GRID[place:place + 1]) for place in range(int(sys.argv[1]), 18, 3)]
sys.stdin.readline()
for document in documents:
    save(document, {"XDG_DATA_HOME": sys.argv[2]})
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("environ", "where"),
    [
        ({"XDG_DATA_HOME": "/data", "HOME": "/home/me"}, "/data/attnctl/profiles"),
        ({"HOME": "/home/me"}, "/home/me/.local/share/attnctl/profiles"),
        ({"XDG_DATA_HOME": "data", "HOME": "/home/me"}, "/home/me/.local/share/attnctl/profiles"),
        ({"XDG_DATA_HOME": "", "HOME": ""}, None),
        ({}, None),
    ],
)
def test_the_folder_is_that_of_the_specification(environ: dict[str, str], where: str) -> None:
    """XDG_DATA_HOME where it is absolute, else below HOME, else nowhere."""
    found = folder(environ)
    assert found == (None if where is None else Path(where))


def test_writers_at_once_keep_the_union(tmp_path: Path) -> None:
    """Three processes with six points each: eighteen are there."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(place), str(tmp_path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            text=True,
        )
        for place in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    (path,) = user_files({"XDG_DATA_HOME": str(tmp_path)})
    (entry,) = read_profile(path).entries
    assert {point.place for point in entry.points} == set(GRID)
    assert [p.name for p in path.parent.iterdir() if p.suffix == ".part"] == []


def test_timings_of_two_compilers_are_kept_apart(home: dict[str, str]) -> None:
    """One file for each, named by device and versions."""
    one, other = profile(), msgspec.structs.replace(profile(), versions=Versions(torch="2.11.0"))
    names = {save(one, home).name, save(other, home).name}
    assert names == {
        "nvidia_sm-90_10de-2330_132_torch-2.14.0-cu130_triton-3.8.0.json",
        "nvidia_sm-90_10de-2330_132_torch-2.11.0.json",
    }


def test_an_unknown_version_is_never_kept(home: dict[str, str]) -> None:
    """It would lock the file for whoever comes later."""
    unknown = msgspec.structs.replace(profile(), versions=Versions(torch="2", triton="unknown"))
    with pytest.raises(InputError, match=r"versions\.triton is unknown"):
        save(unknown, home)
    assert user_files(home) == ()


def test_a_clock_that_was_set_back_keeps_what_a_tune_has_just_measured(
    home: dict[str, str],
) -> None:
    """In the user's own profiles and in a file; an import goes by the days."""
    before = profile(grid=GRID[:1])
    after = profile(grid=GRID[:1], measured="2001-01-01", faster={"FLASH_ATTN": 0.1})
    save(before, home)
    assert read_profile(save(after, home)).entries[0].points[0].pick != "FLASH_ATTN"
    assert read_profile(store(None, after, home)).entries[0].points[0].pick == "FLASH_ATTN"
    output = f"{home['XDG_DATA_HOME']}/p.json"
    store(output, before, home)
    store(output, after, home)
    assert read_profile(output).entries[0].points[0].pick == "FLASH_ATTN"


def test_a_file_that_nobody_may_look_at_hides_no_other(tmp_path: Path) -> None:
    """A link whose target cannot be asked for is among the files; who reads it hears why."""
    for name in ("a.json", "loop.json"):
        (tmp_path / name).symlink_to(name)
    (tmp_path / "b.json").write_bytes(b"{}")
    (tmp_path / "c.json").symlink_to("x" * 300)
    os.mkfifo(tmp_path / "pipe.json")
    names = ["a.json", "b.json", "c.json", "loop.json"]
    assert [path.name for path in json_files(tmp_path)] == names


def test_no_home_and_no_folder_that_can_be_written_are_said() -> None:
    """Reading finds nothing there; writing names what to set."""
    for environ, words in (({}, "XDG_DATA_HOME"), ({"XDG_DATA_HOME": "/dev/null"}, "/dev/null")):
        assert user_files(environ) == ()
        with pytest.raises(InputError, match=words):
            save(profile(), environ)


def test_a_damaged_file_is_not_overwritten(home: dict[str, str]) -> None:
    """What is in it may be worth saving."""
    path = save(profile(), home)
    path.write_text("{")
    with pytest.raises(InputError, match=r"torch-2.*not a profile"):
        save(profile(), home)
    assert path.read_text() == "{"
    remove((path,), home)
    assert user_files(home) == ()


def test_a_name_holds_nothing_that_a_path_could_trip_over() -> None:
    """A key comes from a document, and a document from anywhere."""
    key = msgspec.structs.replace(profile().key, arch="../../x", unit_count=ANY)
    name = file_name(msgspec.structs.replace(profile(), key=key))
    assert "/" not in name
    assert name.startswith("nvidia_x_10de-2330_any_")
