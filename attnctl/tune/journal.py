"""The journal of a tune: JSON lines, each on the disk before the next point begins. No torch.

A tune that was killed at any moment goes on from it: a line that was cut short is dropped, every
other holds a finished point or a verdict.
"""

from __future__ import annotations

import contextlib
import os

from attnctl.documents.journal import JournalFile, Words, refuse_busy, whole_of
from attnctl.exits import InputError
from attnctl.tune.exchange import Verdict
from attnctl.tune.finals import Measured
from attnctl.tune.journal_lines import (
    Header,
    JudgedLine,
    MeasuredLine,
    entries_of,
    refuse_others,
)


class Journal:
    """An open journal with what it already holds. One process at a time may write it.

    begun: this run made it.
    """

    def __init__(self, path: str, file: JournalFile) -> None:
        self.path = path
        self._file = file
        self.begun = False
        self.verdicts: dict[str, Verdict] = {}
        self.measured: dict[str, Measured] = {}

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def judged(self, candidate: str, verdict: Verdict) -> None:
        self.verdicts[candidate] = verdict
        self._file.append(JudgedLine(candidate, verdict))

    def finished(self, task: str, measured: Measured, seconds: float = 0.0) -> None:
        """seconds: what it took, for the reader."""
        self.measured[task] = measured
        self._file.append(MeasuredLine(task, measured, round(seconds, 3)), sync=True)

    def remove(self) -> None:
        """Takes the file away, once what it holds is in a profile."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)  # noqa: PTH108

    def begin(self, header: Header) -> None:
        """Writes the first line; where the disk takes none, there is no journal."""
        self.begun = True
        try:
            self._file.append(header, sync=True)
        except InputError:
            with contextlib.suppress(OSError):
                os.unlink(self.path)  # noqa: PTH108
            raise

    def read(self, header: Header) -> None:
        """Takes what an earlier run left. InputError: it is damaged, or for something else."""
        data = self._file.read()
        whole = whole_of(data)
        if whole < len(data):
            self._file.drop_behind(whole)
        entries = entries_of(data[:whole], self.path)
        first = next(entries, None)
        if first is None:  # killed before even the first line was whole
            self._file.append(header, sync=True)
            return
        if not isinstance(first, Header):
            raise InputError(f"{self.path}: not a journal of attnctl tune: it has no first line")
        refuse_others(first, header, self.path)
        for entry in entries:
            if isinstance(entry, JudgedLine):
                self.verdicts[entry.candidate] = entry.verdict
            elif isinstance(entry, MeasuredLine):
                self.measured[entry.task] = entry.measured


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
    words = Words(path, ": another tune of the same is at work on it", "--resume")
    if there and not resume:
        # nobody may be told to delete what another tune writes now
        refuse_busy(path, words)
        raise InputError(
            f"{path} is there, from a tune that did not end: go on with --resume, or delete it"
        )
    if resume and not there:
        _refuse_strange(path)
    file = JournalFile(path, words)
    journal = Journal(path, file)
    try:
        if there:
            journal.read(header)
        else:
            journal.begin(header)
    except BaseException:
        file.close()
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
