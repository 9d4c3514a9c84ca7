"""What was asked of a host can be saved, read by a person, and played back with its errors."""

import pytest

from attnctl.exits import InputError
from attnctl.probe import host
from attnctl.probe.host import HostError
from attnctl.probe.tape import Recorder, Replay, read_tape, write_tape


class Counting:
    """A host with one file, that counts its questions."""

    def __init__(self):
        self.asked = []

    def ask(self, op, *args):
        self.asked.append((op, *args))
        if args == ("/etc/shadow",):
            raise HostError("denied", "Permission denied")
        if op == "env":
            return None
        return f"{op} of {args[0]}\nsecond line\n"


def test_a_replay_gives_the_same_answers_and_the_same_errors():
    """Texts come back byte for byte, null stays null, and an error keeps kind and detail."""
    recorder = Recorder(Counting())
    assert host.read(recorder, "/proc/a") == "read of /proc/a\nsecond line\n"
    assert host.env(recorder, "NAME") is None
    with pytest.raises(HostError):
        host.read(recorder, "/etc/shadow")
    replay = Replay(read_tape(write_tape(recorder.tape())))
    assert host.read(replay, "/proc/a") == "read of /proc/a\nsecond line\n"
    assert host.env(replay, "NAME") is None
    with pytest.raises(HostError) as caught:
        host.read(replay, "/etc/shadow")
    assert (caught.value.kind, caught.value.detail) == ("denied", "Permission denied")


def test_a_recorder_asks_each_question_once():
    """The second asking, of an answer or of an error, stays inside."""
    outside = Counting()
    recorder = Recorder(outside)
    for _ in range(2):
        host.read(recorder, "/proc/a")
        with pytest.raises(HostError):
            host.read(recorder, "/etc/shadow")
    assert outside.asked == [("read", "/proc/a"), ("read", "/etc/shadow")]


def test_an_unrecorded_question_is_not_an_absent_file():
    """A tape cannot say that something is absent when nobody asked."""
    replay = Replay.of({("read", "/a"): "x"}, default=None)
    with pytest.raises(HostError) as caught:
        host.read(replay, "/b")
    assert caught.value.kind == "unrecorded"
    assert caught.value.detail == "the tape does not hold read /b"


def test_an_invented_machine_lacks_what_it_does_not_list():
    """A tape of answers given by hand answers all else with its default error."""
    replay = Replay.of({("read", "/a"): "x", ("read", "/c"): HostError("timeout", "slow")})
    assert host.read(replay, "/a") == "x"
    for path, kind in (("/b", "absent"), ("/c", "timeout")):
        with pytest.raises(HostError) as caught:
            host.read(replay, path)
        assert caught.value.kind == kind


def test_texts_are_written_line_by_line():
    """A person can read a recorded file in the tape."""
    recorder = Recorder(Counting())
    host.read(recorder, "/proc/a")
    text = write_tape(recorder.tape()).decode()
    assert '"lines":[\n "read of /proc/a",\n "second line",\n ""]' in text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{\xff\xfe",
        b"[]",
        b'{"schema": "attnctl.tape/1"}',
        b'{"schema": "attnctl.tape/1", "entries": [{"ok": 1}]}',
        b'{"schema": "attnctl.tape/1", "entries": [{"ask": ["read"], "error": ["absent"]}]}',
        b'{"schema": "attnctl.tape/99", "entries": []}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_tape_is_one_sentence_with_the_file_in_it(data):
    """Whatever is wrong with a tape, the user reads its name and the way to a new one."""
    with pytest.raises(InputError) as caught:
        read_tape(data, "box.tape.json")
    text = str(caught.value)
    assert text.startswith("box.tape.json: ")
    assert "attnctl probe --record FILE" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "question",
    [host.read, host.names_in, host.link_target, host.access],
)
def test_an_answer_of_the_wrong_shape_is_garbled(question):
    """A number where a text or a list of names belongs is an error of the host, not of us."""
    replay = Replay.of({(op, "/a"): 7 for op in ("read", "list", "link", "access")})
    with pytest.raises(HostError) as caught:
        question(replay, "/a")
    assert caught.value.kind == "garbled"
