"""The file of a journal: lines of JSON at its end, written by one process at a time. No torch.

A process that is killed at any moment leaves whole lines and at most one that is cut short.
"""

from __future__ import annotations

import contextlib
import os
from typing import IO

import msgspec

from attnctl.documents.files import reason
from attnctl.exits import InputError

READ_LIMIT = 1 << 28


class Words(msgspec.Struct, frozen=True):
    """What messages say. name: of the file; busy: whose it is; again: what goes on with it."""

    name: str
    busy: str
    again: str


class JournalFile:
    """An open file that this process alone appends to; made where none is there."""

    def __init__(self, path: str, words: Words) -> None:
        """InputError: it cannot be opened, is no regular file, or is another process's."""
        self._words = words
        try:
            self._file = open(path, "a+b")  # noqa: PTH123, SIM115
        except OSError as error:
            raise InputError(f"{words.name} cannot be written: {reason(error)}") from error
        try:
            if not os.path.isfile(path):  # noqa: PTH113
                raise InputError(f"{words.name}: not a file that can be gone on from")
            _lock(self._file, words)
        except BaseException:
            self.close()
            raise

    def append(self, line: msgspec.Struct, sync: bool = False) -> None:
        """sync: the line is on the disk before this returns. InputError: the disk takes none."""
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(
                f"{self._words.name} cannot be written: {reason(error)}; "
                f"once it can, {self._words.again} goes on"
            ) from error

    def read(self) -> bytes:
        """What is there, a line that was cut short included."""
        self._file.seek(0)
        return self._file.read(READ_LIMIT)

    def drop_behind(self, size: int) -> None:
        """Takes off what lies behind the first `size` bytes."""
        self._file.truncate(size)

    def close(self) -> None:
        # what a full disk did not take is tried once more, and was told of before
        with contextlib.suppress(OSError):
            self._file.close()


def refuse_busy(path: str, words: Words) -> None:
    """InputError where another process writes the file now."""
    with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
        _lock(file, words)


def _lock(file: IO[bytes], words: Words) -> None:
    import fcntl

    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InputError(f"{words.name} is in use{words.busy}") from error


def whole_of(data: bytes) -> int:
    """How many of the bytes are whole lines."""
    return data.rfind(b"\n") + 1
