"""The journal of a tune: JSON lines, each on the disk before the next point begins. No torch.

A tune that was killed at any moment goes on from it: a line that was cut short is dropped, every
other holds a finished point or a verdict.
"""

from __future__ import annotations

import contextlib
import os
from typing import IO

import msgspec

from attnctl.exits import InputError
from attnctl.files import reason
from attnctl.tune.exchange import Verdict
from attnctl.tune.finals import Measured
from attnctl.tune.journal_lines import (
    Entry,
    Header,
    JudgedLine,
    MeasuredLine,
    entries_of,
    refuse_others,
)

READ_LIMIT = 1 << 28


class Journal:
    """An open journal with what it already holds. One process at a time may write it.

    begun: this run made it.
    """

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self.path = path
        self._file = file
        self.begun = False
        self.verdicts: dict[str, Verdict] = {}
        self.measured: dict[str, Measured] = {}

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._file)

    def judged(self, candidate: str, verdict: Verdict) -> None:
        self.verdicts[candidate] = verdict
        self._append(JudgedLine(candidate, verdict))

    def finished(self, task: str, measured: Measured, seconds: float = 0.0) -> None:
        """seconds: what it took, for the reader."""
        self.measured[task] = measured
        self._append(MeasuredLine(task, measured, round(seconds, 3)), sync=True)

    def remove(self) -> None:
        """Takes the file away, once what it holds is in a profile."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)  # noqa: PTH108

    def _append(self, entry: Entry, sync: bool = False) -> None:
        try:
            self._file.write(msgspec.json.encode(entry) + b"\n")
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written: {reason(error)}; once it can, --resume goes on"
            ) from error


def journal_path(output: str, tasks: str) -> str:
    """Beside the profile; two tunes of different things write two journals and one profile."""
    return f"{output}.{tasks[:8]}.journal"


def open_journal(path: str, header: Header, resume: bool) -> Journal:
    """The journal that is there, if this run is to go on from it, or a new one.

    A run that was killed before it had a journal left nothing to go on from: it begins anew.
    header: what this run's times would hold for; an old journal's must say the same. InputError:
    it does not, one is there and nobody said to go on from it, or there are only those of others.
    """
    there = os.path.exists(path)  # noqa: PTH110
    if there and not resume:
        _refuse_busy(path)
        raise InputError(
            f"{path} is there, from a tune that did not end: go on with --resume, or delete it"
        )
    if resume and not there:
        _refuse_strange(path)
    try:
        file = open(path, "a+b")  # noqa: PTH123, SIM115
    except OSError as error:
        raise InputError(f"{path} cannot be written: {reason(error)}") from error
    journal = Journal(path, file)
    try:
        _lock(file, path)
        if there:
            _read(journal, file, header)
        else:
            _begin(journal, header)
    except BaseException:
        _close(file)
        raise
    return journal


def _refuse_strange(path: str) -> None:
    """InputError: what was interrupted is another model's tune, or another workload's."""
    folder, name = os.path.split(path)
    stem = name.rsplit(".", 2)[0]
    try:
        names = os.listdir(folder or ".")  # noqa: PTH208
    except OSError:
        return
    found = sorted(one for one in names if one.startswith(f"{stem}.") and one.endswith(".journal"))
    if found:
        raise InputError(
            f"--resume: {path} is not there: no tune of this model and workload was interrupted, "
            f"but the one of {found[0]}; start this one without --resume"
        )


def _begin(journal: Journal, header: Header) -> None:
    """Writes the first line; where the disk takes none, there is no journal."""
    journal.begun = True
    try:
        journal._append(header, sync=True)
    except InputError:
        with contextlib.suppress(OSError):
            os.unlink(journal.path)  # noqa: PTH108
        raise


def _close(file: IO[bytes]) -> None:
    # what a full disk did not take is tried once more, and was told of before
    with contextlib.suppress(OSError):
        file.close()


def _refuse_busy(path: str) -> None:
    """InputError where another tune writes it now: nobody may be told to delete that one."""
    with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
        _lock(file, path)


def _lock(file: IO[bytes], path: str) -> None:
    import fcntl

    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InputError(f"{path} is in use: another tune of the same is at work on it") from error


def _read(journal: Journal, file: IO[bytes], header: Header) -> None:
    file.seek(0)
    data = file.read(READ_LIMIT)
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        file.truncate(whole)  # the line that a kill cut short
    entries = entries_of(data[:whole], journal.path)
    first = next(entries, None)
    if first is None:  # killed before even the first line was whole
        journal._append(header, sync=True)
        return
    if not isinstance(first, Header):
        raise InputError(f"{journal.path}: not a journal of attnctl tune: it has no first line")
    refuse_others(first, header, journal.path)
    for entry in entries:
        if isinstance(entry, JudgedLine):
            journal.verdicts[entry.candidate] = entry.verdict
        elif isinstance(entry, MeasuredLine):
            journal.measured[entry.task] = entry.measured
