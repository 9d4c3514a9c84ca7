"""What a compilation with every knob says of how far it is."""

from __future__ import annotations

import io

import pytest

from attnctl.compiling.knobs import Step
from attnctl.render.knobs_bar import KnobsBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def step(done: int, *, total: int = 101, known: int = 0, bad: int = 0, lists: int = 0) -> Step:
    return Step(done=done, total=total, known=known, bad=bad, lists_left=lists)


def said(stream: io.StringIO, *steps: tuple[float, Step]) -> list[str]:
    """What stands on the stream after steps at these seconds."""
    times = iter([0.0, *(at for at, _ in steps)])
    bar = KnobsBar(stream, clock=lambda: next(times))
    for _, one in steps:
        bar.told(one)
    return [line for line in stream.getvalue().replace("\r\x1b[K", "\n").splitlines() if line]


def test_off_a_terminal_a_line_is_written_each_minute() -> None:
    """A short run says nothing: its standard error stays empty."""
    steps = ((10.0, step(1)), (59.0, step(11)), (60.0, step(11, bad=2)), (110.0, step(21)))
    assert said(io.StringIO(), *steps) == [
        "11/101 compiled, about 8 min left, 2 bad",
    ]


def test_on_a_terminal_the_bar_follows_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that is left is of what this run compiles, and known when all is listed."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "90")
    lines = said(
        Terminal(),
        (1.0, step(0, total=40, known=7, lists=3)),
        (2.0, step(1, known=7)),
        (12.0, step(11, known=7)),
    )
    assert [line.partition("] ")[2] for line in lines] == [
        "0/40 compiled, 3 cases to look at, 7 more known before",
        "1/101 compiled, 7 more known before",
        "11/101 compiled, about 90 s left, 7 more known before",
    ]
