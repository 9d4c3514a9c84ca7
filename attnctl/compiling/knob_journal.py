"""The journal of a compilation with every knob: JSON lines, each written as a launch is done.

A run that was ended at any moment goes on from it, and one after an edit compiles what that edit
changed: a line counts for whoever asks for its key. What crashed or hung is tried again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from attnctl.compiling.knob_lines import Made
from attnctl.documents.journal import JournalFile, Words, whole_of
from attnctl.documents.json_text import UNREADABLE
from attnctl.exits import InputError

SCHEMA = "attnctl.compiled/1"


class Header(msgspec.Struct, frozen=True, tag="journal"):
    """The first line."""

    schema: str


Line = Header | Made


class Journal:
    """An open journal. made: by key, what it held when it was opened, and counts."""

    def __init__(self, path: str, file: JournalFile) -> None:
        self.path = path
        self._file = file
        self.made: dict[str, Made] = {}

    def note(self, made: Made) -> None:
        """InputError: the disk does not take it."""
        self._file.append(made)

    def read(self) -> None:
        """Takes what is there; begins the file where there is nothing. InputError: not a journal.

        A line that a kill cut short is taken off.
        """
        data = self._file.read()
        whole = whole_of(data)
        if whole == 0 and data and not _HEADER.startswith(data):
            raise InputError(_strange(self.path))
        lines = [*_lines(data[:whole], self.path)]
        if whole < len(data):
            self._file.drop_behind(whole)
        if not lines:
            self._file.append(Header(SCHEMA))
        self.made = {line.key: line for line in lines if isinstance(line, Made) and line.final}


_HEADER = msgspec.json.encode(Header(SCHEMA)) + b"\n"


@contextlib.contextmanager
def open_journal(path: str | None) -> Iterator[Journal | None]:
    """None for None. InputError: it is another file, is in use, or cannot be written."""
    if path is None:
        yield None
        return
    words = Words(f"--journal {path}", " by another run", "the same command")
    file = JournalFile(path, words)
    try:
        journal = Journal(path, file)
        journal.read()
        yield journal
    finally:
        file.close()


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
