"""Every row of the table runs the real program as a child process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.documents import DOCUMENTS
from tests.faults.endings import ENDINGS
from tests.faults.every_key import EVERY_KEY
from tests.faults.homes import HOMES
from tests.faults.machines import MACHINES
from tests.faults.row import Place, Row
from tests.faults.streams import STREAMS
from tests.faults.words import WORDS

# fault -> sentence -> exit code, for whatever can go wrong from outside
TABLE = (*DOCUMENTS, *EVERY_KEY, *WORDS, *STREAMS, *HOMES, *MACHINES, *ENDINGS)


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
