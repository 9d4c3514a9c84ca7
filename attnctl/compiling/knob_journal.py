"""The journal of a compilation with every knob: JSON lines, each written as a launch is done.

A run that was ended at any moment goes on from it, and one after an edit compiles what that edit
changed: a line counts for whoever asks for its key. What crashed or hung is tried again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import IO

import msgspec

from attnctl.compiling.knob_lines import Made
from attnctl.exits import InputError
from attnctl.files import reason
from attnctl.json_text import UNREADABLE

SCHEMA = "attnctl.compiled/1"


class Header(msgspec.Struct, frozen=True, tag="journal"):
    """The first line."""

    schema: str


Line = Header | Made


class Journal:
    """An open journal. made: by key, what it held when it was opened, and counts."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self.path = path
        self._file = file
        self.made: dict[str, Made] = {}

    def note(self, made: Made) -> None:
        """InputError: the disk does not take it."""
        self._append(made)

    def _append(self, line: Line) -> None:
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
        except OSError as error:
            raise InputError(
                f"--journal {self.path} cannot be written: {reason(error)}; "
                "once it can, the same command goes on"
            ) from error

    def read(self) -> None:
        """Takes what is there; begins the file where there is nothing. InputError: not a journal.

        A line that a kill cut short is taken off.
        """
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        if whole == 0 and data and not _HEADER.startswith(data):
            raise InputError(_strange(self.path))
        lines = [*_lines(data[:whole], self.path)]
        if whole < len(data):
            self._file.truncate(whole)
        if not lines:
            self._append(Header(SCHEMA))
        self.made = {line.key: line for line in lines if isinstance(line, Made) and line.final}


_HEADER = msgspec.json.encode(Header(SCHEMA)) + b"\n"


@contextlib.contextmanager
def open_journal(path: str | None) -> Iterator[Journal | None]:
    """None for None. InputError: it is another file, is in use, or cannot be written."""
    if path is None:
        yield None
        return
    try:
        file = open(path, "a+b")  # noqa: PTH123, SIM115
    except OSError as error:
        raise InputError(f"--journal {path} cannot be written: {reason(error)}") from error
    try:
        _lock(file, path)
        journal = Journal(path, file)
        journal.read()
        yield journal
    finally:
        # what a full disk did not take is tried once more, and was told of before
        with contextlib.suppress(OSError):
            file.close()


def _lock(file: IO[bytes], path: str) -> None:
    if not os.path.isfile(path):  # noqa: PTH113
        raise InputError(f"--journal {path}: not a file that can be gone on from")
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InputError(f"--journal {path} is in use by another run") from error


def _lines(data: bytes, path: str) -> Iterator[Line]:
    for number, text in enumerate(data.splitlines(), 1):
        try:
            line: Line = msgspec.json.decode(text, type=Line)
        except UNREADABLE as error:
            if number == 1:
                raise InputError(_strange(path)) from error
            raise InputError(
                f"--journal {path}: line {number} is damaged ({error}): delete the line"
            ) from error
        if (number == 1) is not isinstance(line, Header):
            raise InputError(_strange(path))
        if isinstance(line, Header) and line.schema != SCHEMA:
            raise InputError(f"--journal {path} is of schema {line.schema}: name another file")
        yield line


def _strange(path: str) -> str:
    return f"--journal {path}: not a journal of attnctl smoke --every-knob; name another file"
