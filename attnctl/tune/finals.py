"""What is kept of a point: the last candidates' times, what could not win, who won. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from attnctl.tune.exchange import Fault
from attnctl.tune.noise import error_us
from attnctl.tune.settings import Knobs
from attnctl.tune.workload import Load

TIE = 1.02
SURE = 2.0
"""Standard errors by which a later setting must be faster than an earlier one to beat it."""

NOT_JUDGED = "the budget ended before it was judged"
NOT_TIMED = "the budget ended before it was timed"
OTHER_PAGE = "its size of the cache's blocks lost at other points"


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate's times. place: its setting's among those of its backend, 0 is the default.

    clock, host_us: as a profile's Timing has them.
    """

    backend: str
    place: int
    knobs: Knobs = {}
    kernel: str = ""
    page: int = 0
    median_us: float
    iqr_us: float
    runs: int
    clock: str = ""
    host_us: float = 0.0


class Out(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that could not win."""

    backend: str
    knobs: Knobs = {}
    kernel: str = ""
    why: Fault | str
    detail: str = ""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is kept of one point. tried: backend -> settings that were timed.

    pages: sizes of the cache's blocks that were raced here, each with settings of its own.
    dropped: candidates that were slower in the first rounds, with the times of those.
    """

    shape_key: str
    load: Load
    finals: tuple[Final, ...]
    dropped: tuple[Final, ...] = ()
    out: tuple[Out, ...] = ()
    tried: dict[str, int] = {}
    pages: tuple[int, ...] = ()

    def best(self, backend: str | None = None) -> Final | None:
        """The winner within the tie: of one backend, or of all."""
        kept = [one for one in self.finals if backend in (None, one.backend)]
        return winner(kept)


def winner(finals: Sequence[Final]) -> Final | None:
    """The first of those that are within the tie of the fastest, or no slower for all we know."""
    return next(iter(tied(finals)), None)


def tied(finals: Sequence[Final]) -> list[Final]:
    """The fastest with those that are within its tie, in their order."""
    if not finals:
        return []
    fastest = min(finals, key=lambda one: one.median_us)
    return [one for one in finals if one.median_us <= fastest.median_us + _tie(one, fastest)]


def _tie(one: Final, fastest: Final) -> float:
    """How much slower than the fastest it may be without losing: 2 %, or the noise of both."""
    errors = [error_us(final.iqr_us, final.runs) for final in (one, fastest)]
    return max((TIE - 1) * fastest.median_us, SURE * math.hypot(*errors))
