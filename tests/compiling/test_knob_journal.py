"""The journal of a compilation with every knob: what is gone on from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnctl.compiling.knob_journal import open_journal
from attnctl.compiling.knob_lines import Made
from attnctl.exits import InputError

LINES = (
    Made("sm_90:k:a", "error", detail="RuntimeError: no"),
    Made("sm_90:k:b", "crashed", detail="signal SIGKILL"),
    Made("sm_90:k:c", "timeout", detail="no answer after 300 s"),
)


def begun(path: Path) -> bytes:
    with open_journal(str(path)) as journal:
        assert journal is not None
        assert journal.made == {}
        for line in LINES:
            journal.note(line)
    return path.read_bytes()


def held(path: Path) -> set[str]:
    with open_journal(str(path)) as journal:
        assert journal is not None
        return set(journal.made)


def test_what_compiled_and_what_cannot_is_known_and_what_died_is_tried_again(
    tmp_path: Path,
) -> None:
    """A crash may come of a full memory, and a hang of a busy machine."""
    path = tmp_path / "j"
    begun(path)
    assert held(path) == {"sm_90:k:a"}


def test_a_line_that_a_kill_cut_short_is_taken_off(tmp_path: Path) -> None:
    """At every byte: what is whole before it counts, and the file goes on after it."""
    path = tmp_path / "j"
    whole = begun(path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert held(path) <= {"sm_90:k:a"}
        assert path.read_bytes().endswith(b"\n")
        with open_journal(str(path)) as journal:
            assert journal is not None
            journal.note(LINES[0])
        assert held(path) == {"sm_90:k:a"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# notes of mine", "not a journal of attnctl smoke"),
        ('{"type":"made","key":"sm_90:k:a"}\n', "not a journal of attnctl smoke"),
        ('{"type":"journal","schema":"attnctl.compiled/9"}\n', "is of schema attnctl.compiled/9"),
        ('{"type":"journal","schema":"attnctl.compiled/1"}\nx\n', "line 2 is damaged"),
    ],
)
def test_another_file_is_refused_and_left_as_it_is(text: str, says: str, tmp_path: Path) -> None:
    """Nothing is ever written into a file that is not a journal."""
    path = tmp_path / "other"
    path.write_text(text)
    with pytest.raises(InputError, match=says), open_journal(str(path)):
        pass
    assert path.read_text() == text


def test_a_journal_is_of_one_run_at_a_time(tmp_path: Path) -> None:
    """And it is a file, in a folder that is there."""
    path = str(tmp_path / "j")
    with open_journal(path), pytest.raises(InputError, match="in use"), open_journal(path):
        pass
    for bad in (tmp_path, tmp_path / "absent" / "j", Path("/dev/null")):
        with pytest.raises(InputError, match="--journal"), open_journal(str(bad)):
            pass


def test_without_a_journal_there_is_none() -> None:
    """Nobody asked for one."""
    with open_journal(None) as journal:
        assert journal is None
