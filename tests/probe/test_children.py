"""A vendor library in a child may do anything, and the parent gets an answer or a typed error."""

import os
import time

import pytest

from attnctl.probe.children import ask_child
from attnctl.probe.host import HostError


def ask(library, *args, timeout_s=2.0):
    return ask_child(library, args, timeout_s, package="tests.probe.faulty")


def failure(library, *args, timeout_s=2.0):
    with pytest.raises(HostError) as caught:
        ask(library, *args, timeout_s=timeout_s)
    return caught.value.kind, caught.value.detail


def test_what_a_library_prints_does_not_reach_its_answer():
    """Noise on both streams, past the size of a pipe, leaves the answer whole."""
    assert ask("ask_chatty", 1, "two")["args"] == [1, "two"]


def test_a_hanging_library_is_ended_with_everything_that_it_started(tmp_path):
    """The time limit holds, and no process of the child's group is left."""
    started = time.monotonic()
    kind, detail = failure("ask_hang", str(tmp_path / "group"), timeout_s=0.5)
    assert time.monotonic() - started < 1.5
    assert (kind, detail) == ("timeout", "ask_hang: no answer within 0.5 s")
    group = int((tmp_path / "group").read_text())
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError("a process of the group is still there")


def test_a_crash_names_its_signal():
    """A segfault in a library is a typed error and not a dead command."""
    assert failure("ask_crash") == ("crashed", "ask_crash: ended by SIGSEGV")


@pytest.mark.parametrize(
    ("how", "kind", "detail"),
    [
        ("typed", "denied", "no access to /dev/nvidiactl"),
        ("key", "failed", "KeyError: 'libamd_smi.so'"),
        ("exit", "failed", "SystemExit: 3"),
        ("import", "absent", "ModuleNotFoundError: No module named 'no_such_library_at_all'"),
        ("object", "failed", "TypeError: Object of type object is not JSON serializable"),
    ],
)
def test_an_exception_keeps_its_kind_and_its_text(how, kind, detail):
    """HostError passes unchanged; other exceptions become a kind, with type and text."""
    assert failure("ask_raise", how) == (kind, detail)


@pytest.mark.parametrize(
    ("how", "kind", "part"),
    [
        ("flood", "garbled", "an answer of over 1048576 bytes"),
        ("half", "garbled", "half an answer of 7 bytes"),
        ("silent", "crashed", "ended with status 3, without an answer"),
        ("garbage", "garbled", "ask_flood: JSON is malformed"),
    ],
)
def test_an_answer_that_breaks_the_protocol_is_not_believed(how, kind, part):
    """Floods are cut, halves and garbage are refused, silence is a crash."""
    found, detail = failure("ask_flood", how)
    assert found == kind
    assert part in detail


def test_a_module_that_is_not_there_is_absent():
    """An unknown library is an absent one, with the name in the reason."""
    kind, detail = failure("ask_nobody")
    assert kind == "absent"
    assert "faulty.ask_nobody" in detail
