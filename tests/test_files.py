"""Files that the user names: read whole, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnctl.exits import InputError
from attnctl.files import read_bytes, write_whole


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
