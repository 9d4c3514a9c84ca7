"""Files that the user names: read whole, written whole or not at all."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path

import pytest

from attnctl.documents.files import (
    SIZE_LIMIT,
    as_json,
    read_bytes,
    refuse_full,
    refuse_unwritable,
    same_file,
    write_whole,
)
from attnctl.exits import InputError
from attnctl.render.output import Output


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Bytes come back as they went, over an older file."""
    path = str(tmp_path / "x")
    write_whole(path, b"old")
    write_whole(path, b"new\x00")
    assert read_bytes(path, "note") == b"new\x00"
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("name", ["missing/x", "", "x\x00y"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    """The error names the file, and nothing is left behind."""
    with pytest.raises(InputError, match="cannot be written"):
        write_whole(f"{tmp_path}/{name}", b"data")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The error says which file and why."""
    with pytest.raises(InputError, match=r"missing cannot be read: No such file"):
        read_bytes(str(tmp_path / "missing"), "note")


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    """A file of the limit is read; one byte more, or a device without an end, is refused."""
    path = tmp_path / "x"
    path.write_bytes(b" " * SIZE_LIMIT)
    assert len(read_bytes(path, "note")) == SIZE_LIMIT
    path.write_bytes(b" " * (SIZE_LIMIT + 1))
    for endless in (path, "/dev/zero"):
        with pytest.raises(InputError, match="is larger than 16 MiB; that is no note"):
            read_bytes(endless, "note")


def test_a_link_is_followed(tmp_path: Path) -> None:
    """The link stays one and its target is written, whether or not it was there."""
    (tmp_path / "old").write_bytes(b"old")
    for name in ("old", "new"):
        link = tmp_path / f"to-{name}"
        link.symlink_to(name)
        write_whole(str(link), b"data")
        assert link.is_symlink()
        assert (tmp_path / name).read_bytes() == b"data"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["new", "old", "to-new", "to-old"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    """What nobody else could read stays so."""
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_whole(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    """The caller's umask decides, as with every other program."""
    (tmp_path / "plain").write_bytes(b"")
    write_whole(str(tmp_path / "x"), b"new")
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("linked", [False, True])
def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path, linked: bool) -> None:
    """A pipe gets the bytes; it is not replaced by a file, through a link either."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(str(tmp_path / "link" if linked else pipe), b"data")
        assert os.read(reader, 100) == b"data"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert (tmp_path / "link").is_symlink()


def test_a_folder_is_no_place_for_a_file(tmp_path: Path) -> None:
    """The error names it, and it stays empty."""
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        write_whole(str(tmp_path), b"data")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/proc/p.json", "/proc/p.json cannot be written: "),
        ("/proc/self/fd/p.json", "p.json cannot be written: "),
        ("/nowhere/p.json", "its folder does not exist"),
        ("/tmp", "it is a folder"),
        ("/dev/full", "/dev/full cannot be written: No space left on device; name another file"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(path: str, says: str) -> None:
    """A folder that nobody can write to shows before hours of measuring, not after them."""
    with pytest.raises(InputError, match=says):
        refuse_unwritable(path)


@pytest.mark.parametrize("name", ["loop", "x" * 300])
def test_a_name_that_leads_nowhere_is_refused_before_the_work(tmp_path: Path, name: str) -> None:
    """A link to itself, or a name that is too long, is one sentence."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=r"cannot be written: .*; name another file"):
        refuse_unwritable(str(tmp_path / name))
    assert [one.name for one in tmp_path.iterdir()] == ["loop"]


def test_asking_whether_a_file_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    """Neither beside a file that is there nor where none is; the file keeps its bytes."""
    (tmp_path / "old").write_bytes(b"old")
    for name in ("old", "new"):
        refuse_unwritable(str(tmp_path / name))
    assert [one.name for one in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"
    refuse_unwritable("/dev/null")


def test_an_open_file_is_asked_for_room_and_given_nothing(tmp_path: Path) -> None:
    """A device that takes nothing is an error; a file and a pipe stay as they are."""
    with (
        Path("/dev/full").open("wb") as full,
        pytest.raises(OSError, match="No space left on device"),
    ):
        refuse_full(full.fileno())
    reader, writer = os.pipe()
    try:
        refuse_full(writer)
        os.set_blocking(reader, False)
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
    finally:
        os.close(reader)
        os.close(writer)
    with (tmp_path / "x").open("wb") as file:
        refuse_full(file.fileno())
    assert (tmp_path / "x").read_bytes() == b""


def test_a_stream_that_is_no_file_of_the_system_is_asked_nothing() -> None:
    """As a program's own that calls the command line."""
    Output(io.StringIO()).refuse_full()
    Output(io.StringIO()).refuse_unwritable("-", "/dev/null")


def test_half_a_character_is_a_question_mark_in_json() -> None:
    """In keys and values, at any depth; numbers that JSON lacks stay null."""
    odd = {"a\udcff": ["\udc80b", {"c": float("nan")}], "d": 1}
    assert json.loads(as_json(odd)) == {"a?": ["?b", {"c": None}], "d": 1}


def test_one_file_has_many_names(tmp_path: Path) -> None:
    """By link or by spelling, there or not; two files are two."""
    (tmp_path / "x").write_bytes(b"")
    (tmp_path / "link").symlink_to("x")
    assert same_file(f"{tmp_path}/x", f"{tmp_path}/link")
    assert same_file(f"{tmp_path}/none", f"{tmp_path}/./none")
    assert not same_file(f"{tmp_path}/x", f"{tmp_path}/none")
