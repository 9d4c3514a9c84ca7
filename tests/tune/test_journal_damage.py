"""Journals that do not read, and disks that do not take what a tune has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnctl.exits import InputError
from attnctl.profile.document import read_profile
from attnctl.tune.session import tune
from tests.tune.fake import POINTS, FakeBench, Silent, request
from tests.tune.interrupted import begun, refusal


def test_a_journal_of_another_schema_says_what_to_do(tmp_path: Path) -> None:
    """Another attnctl began it, and that one can end it."""
    output = tmp_path / "p.json"
    journal = begun(output)
    journal.write_bytes(journal.read_bytes().replace(b"attnctl.journal/1", b"attnctl.journal/7"))
    said = refusal(output)
    assert "its schema is attnctl.journal/7" in said
    assert said.endswith("resume it with the attnctl that began it, or delete it")


def test_a_damaged_line_is_refused(tmp_path: Path) -> None:
    """A line in the middle that is no JSON: somebody edited the file."""
    output = tmp_path / "p.json"
    journal = begun(output)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + b"nonsense\n" + b"".join(lines[1:]))
    assert "line 2 is damaged" in refusal(output)


def test_a_profile_that_cannot_be_written_at_the_end_loses_nothing(tmp_path: Path) -> None:
    """Its folder went away under the run: the times stay, and are not measured again."""
    output = tmp_path / "p.json"

    class Blocked(Silent):
        def step(self, step: Any) -> None:
            super().step(step)
            output.mkdir(exist_ok=True)

    with pytest.raises(InputError, match=r"what was measured is in .*\.journal: once it can be"):
        tune(request(output), Blocked(), FakeBench())
    output.rmdir()
    bench = FakeBench()
    tune(request(output, resume=True), Silent(), bench)
    assert bench.timed == []
    assert len(read_profile(output).entries[0].points) == len(POINTS)


NESTED = '{"type":"judged","candidate":"c","verdict":{"x":' + "[" * 100_000


@pytest.mark.parametrize("line", [NESTED.encode(), b'{"type":"judged","candidate":"\xff"}'])
def test_a_line_that_no_parser_takes_is_refused(tmp_path: Path, line: bytes) -> None:
    """Brackets without an end, or bytes that are no text: the line is named, not a bug."""
    output = tmp_path / "p.json"
    journal = begun(output)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + line + b"\n" + b"".join(lines[1:]))
    assert "line 2 is damaged" in refusal(output)


@pytest.mark.parametrize("last", [False, True])
def test_a_time_that_nothing_takes_is_refused(tmp_path: Path, last: bool) -> None:
    """It is found when the journal is read, not when the profile is made of it at the end.

    The last one is of what was dropped early.
    """
    output = tmp_path / "p.json"
    journal = begun(output)
    data, mark = journal.read_bytes(), b'"median_us":'
    assert data.rindex(b'"dropped":') < data.rindex(mark)
    before, _, after = data.rpartition(mark) if last else data.partition(mark)
    journal.write_bytes(before + mark + b"-" + after)
    said = refusal(output)
    assert "is damaged (a time of -" in said
    assert said.endswith("delete the file and start again")
