"""How far a compilation with every knob is, on standard error: a bar, or a line a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from attnctl.compiling.knobs import Step
from attnctl.render.tune import Bar

EVERY_S = 60.0


class KnobsBar(Bar):
    """Where standard error is no terminal, a line is written each minute, and none before."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream)
        self._clock = clock
        self._said = clock()
        self._began: float | None = None

    def told(self, step: Step) -> None:
        """Shows a step."""
        now = self._clock()
        if self._began is None and step.done:
            self._began = now
        words = self._words(step, now)
        self.show(step.done, step.total, words)
        if not self._shown and self._stream is not None and now - self._said >= EVERY_S:
            self._said = now
            self._stream.write(f"{step.done}/{step.total}{words}\n")
            self._stream.flush()

    def _words(self, step: Step, now: float) -> str:
        words, left_s = " compiled", self._left_s(step, now)
        if step.lists_left:
            words += f", {step.lists_left} cases to look at"
        elif left_s is not None:
            words += f", about {_time(left_s)} left"
        if step.bad:
            words += f", {step.bad} bad"
        return f"{words}, {step.known} more known before" if step.known else words

    def _left_s(self, step: Step, now: float) -> float | None:
        """None while only one is done: its time is not known."""
        if self._began is None or step.done < 2:
            return None
        return (now - self._began) * (step.total - step.done) / (step.done - 1)


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
