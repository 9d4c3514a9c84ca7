"""Every row of the table runs the real program as a child process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.documents import DOCUMENTS
from tests.faults.endings import ENDINGS
from tests.faults.every_key import EVERY_KEY
from tests.faults.homes import HOMES
from tests.faults.kinds import KINDS
from tests.faults.machines import MACHINES
from tests.faults.numbers import NUMBERS
from tests.faults.outputs import OUTPUTS
from tests.faults.row import Place, Row
from tests.faults.streams import STREAMS
from tests.faults.words import WORDS

# fault -> sentence -> exit code, for whatever can go wrong from outside
TABLE = (*DOCUMENTS, *NUMBERS, *EVERY_KEY, *WORDS, *STREAMS, *HOMES, *OUTPUTS, *MACHINES, *ENDINGS)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.fault)
def test_a_fault_is_one_sentence_and_nothing_is_lost(tmp_path: Path, row: Row) -> None:
    """What, where and what to do; the exit code; no traceback; every file as it was."""
    place = Place(tmp_path)
    for given in row.given:
        given(place)
    before = place.files()
    code, out, err = row.run(place, row.line)
    after = place.files()
    assert code == row.code, err
    for text in (out, err):
        assert "Traceback" not in text
        assert "this is a bug" not in text
        assert "\x1b" not in text
    if row.code in (0, 1):
        assert row.says in " ".join((out + err).split())
    elif not row.says:
        assert (out, err) == ("", "")
    else:
        assert row.says in err
        assert err.startswith("attnctl: ")
        assert (bool(out), err.count("\n")) == (row.answered, 1)
    new = {name: data for name, data in after.items() if before.get(name) != data}
    assert {name for name in new if not name.startswith(row.leaves or "\0")} == set()
    assert before.keys() <= after.keys()


def test_every_fault_has_a_name_of_its_own() -> None:
    """And there are as many as a stranger may hope for."""
    names = [row.fault for row in TABLE]
    assert len(set(names)) == len(names)
    assert len(names) > 150


@pytest.mark.parametrize(
    ("what", "rows"),
    [
        ("deep nesting", ("of 100,000 brackets",)),
        ("a gigabyte", ("of 1 GB",)),
        ("not a number", ("with NaN",)),
        ("huge numbers", ("with a number of 5000 digits",)),
        ("a key given twice", ("that names a key twice",)),
        ("wrong types at every key", ("a wrong type at every key of",)),
        ("binary", ("that is a program",)),
        ("a tape that lies", ("a tape that lies about every file", "on which everything failed")),
        ("a library that sleeps", ("an NVML that sleeps", "an amdsmi that sleeps")),
        ("a library that lies", ("an NVML that lies in every call", "an NVML that crashes")),
        ("a file that never ends", ("files of sysfs and proc without an end", "without an end")),
        ("permission errors", ("permission errors everywhere",)),
        ("a read-only home", ("a read-only home, to tune", "a read-only home, to read")),
        ("a full disk", ("a full disk, to import a profile", "standard output full")),
        ("no HOME", ("no HOME, to read", "no HOME, to tune")),
        ("no terminal", ("no terminal", "a terminal of no size")),
        ("an odd locale", ("no locale", "the locale C without UTF-8")),
        ("two writers", ("two tunes that write one profile", "two imports that write one")),
        ("an interrupt", ("SIGINT during smoke", "SIGINT during a tune")),
        ("a kill", ("SIGKILL during smoke", "SIGKILL during a tune")),
        ("a worker that floods", ("a worker that prints without end",)),
    ],
)
def test_every_kind_of_fault_stands_in_the_table(what: str, rows: tuple[str, ...]) -> None:
    """What can go wrong from outside; what a document may be, every kind of document may."""
    for row in rows:
        found = [one.fault for one in TABLE if row in one.fault]
        assert found, f"{what}: no row says {row}"
    if rows[0].startswith(("of ", "with ", "that ")):
        every = {kind.article for kind in KINDS}
        assert every == {fault.partition(f" {rows[0]}")[0] for fault in found}, what
