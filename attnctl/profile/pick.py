"""The backend, kernel and knobs for one batch, from the nearest point that was timed.

Everything that depends on the profile alone is worked out when a table is made; asking one costs a
few logarithms and comparisons.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import log2
from types import MappingProxyType
from typing import Literal

import msgspec

from attnctl.profile.ranking import block_asked, default_us, standing
from attnctl.profile.ratio import times_text
from attnctl.profile.values import Entry, Point, Profile, Shape, Timing

REACH = 2.0 + 1e-9
"""Octaves: a point stands for workloads within 4x of it on each axis. The logarithms of counts that
are 4x apart, such as 10 and 40, may differ by a rounding more than 2."""
DECODE_TOKENS = 8
"""New tokens a sequence up to which a batch is looked up as decoding: speculative steps are."""
FAR = "no point within 4x of it was timed"
NOT_TIMED = "the profile has no timings for layers of this shape"
NOTHING = "no backend is eligible"
NO_KNOBS: Mapping[str, int | str | bool] = MappingProxyType({})


class Pick(msgspec.Struct, frozen=True, gc=False):
    """What runs a batch. kernel "" and no knobs: the bundled defaults.

    evidence: measured where timings of `point` decided backend or knobs, else default. time_us:
    what it took there.
    """

    backend: str
    kernel: str
    knobs: Mapping[str, int | str | bool]
    evidence: Literal["measured", "default"]
    point: Point | None
    because: str
    time_us: float | None = None


def phase_of(query: int) -> Literal["decode", "prefill"]:
    """As what a batch with so many new tokens a sequence is looked up."""
    return "decode" if query <= DECODE_TOKENS else "prefill"


_Row = tuple[float, list[float], list[Pick]]
"""log2 of the query; the contexts' logs, rising; the pick at each."""


class Table:
    """The picks of one layer shape among some eligible backends, by batch shape.

    eligible: names in the default order. Immutable once made, so that threads may share it.
    """

    def __init__(self, entry: Entry | None, eligible: Sequence[str], measured: str = "") -> None:
        first = eligible[0] if eligible else ""
        because = NOTHING if not eligible else NOT_TIMED if entry is None else FAR
        self.default = Pick(first, "", NO_KNOBS, "default", None, because)
        self.points: tuple[Pick, ...] = ()
        self._timed, self._eligible = entry.points if entry is not None else (), eligible
        if entry is not None and eligible:
            picks = (pick_at(point, eligible, measured) for point in entry.points)
            self.points = tuple(pick for pick in picks if pick is not None)
        self._rows = {phase: _rows(phase, self.points) for phase in ("prefill", "decode")}

    @property
    def block_size(self) -> int | None:
        """Tokens in a block of the cache, as attnctl.profile.ranking.block_asked finds them."""
        return block_asked(self._timed, self._eligible)

    def pick(self, phase: str, batch: int, context: int, query: int = 1) -> Pick:
        """The pick of the nearest timed point in log space, within 4x on each axis; else default.

        batch sequences of context tokens each, query new ones each; counts below 1 are as 1.
        """
        b = log2(batch) if batch > 1 else 0.0
        s = log2(context) if context > 1 else 0.0
        q = log2(query) if query > 1 else 0.0
        best, found = 3 * REACH * REACH + 1.0, self.default
        rows, starts = self._rows[phase]
        above = bisect_left(starts, b)
        below, last = above - 1, len(starts)
        # from the nearest batch on, so that few rows are looked at however many there are
        while below >= 0 or above < last:
            if above == last or (below >= 0 and b - starts[below] <= starts[above] - b):
                db, row = b - starts[below], rows[below]
                below -= 1
            else:
                db, row = starts[above] - b, rows[above]
                above += 1
            if db > REACH or db * db >= best:
                break
            row_q, contexts, picks = row
            dq = row_q - q
            base = db * db + dq * dq
            if base >= best or not -REACH <= dq <= REACH:
                continue
            at = bisect_left(contexts, s)
            if at < len(contexts):
                ds = contexts[at] - s
                if ds <= REACH and base + ds * ds < best:
                    best, found = base + ds * ds, picks[at]
            if at:
                ds = s - contexts[at - 1]
                if ds <= REACH and base + ds * ds < best:
                    best, found = base + ds * ds, picks[at - 1]
        return found


def _rows(phase: str, picks: Sequence[Pick]) -> tuple[list[_Row], list[float]]:
    """The picks of one phase by batch and query, each row by context; and the batches' logs."""
    rows: dict[tuple[int, int], list[tuple[int, Pick]]] = {}
    for pick in picks:
        point = pick.point
        if point is not None and point.phase == phase:
            rows.setdefault((point.batch, point.query), []).append((point.context, pick))
    found, starts = [], []
    for (batch, query), row in sorted(rows.items()):
        row.sort(key=lambda one: one[0])
        found.append((log2(query), [log2(s) for s, _ in row], [p for _, p in row]))
        starts.append(log2(batch))
    return found, starts


class Picker:
    """A profile made ready: one table for each shape and eligible list that was asked about."""

    def __init__(self, profile: Profile | None) -> None:
        self._measured = profile.measured if profile else ""
        entries = profile.entries if profile else ()
        self._entries = {entry.shape.full: entry for entry in reversed(entries)}
        self._tables: dict[tuple[Shape, tuple[str, ...]], Table] = {}

    def table(self, shape: Shape, eligible: Sequence[str]) -> Table:
        """The table of one layer shape; keep it where it is asked often."""
        key = shape.full, tuple(eligible)
        table = self._tables.get(key)
        if table is None:
            table = Table(self._entries.get(key[0]), key[1], self._measured)
            self._tables[key] = table
        return table


def pick(
    profile: Profile | None,
    shape: Shape,
    phase: str,
    batch: int,
    context: int,
    query: int,
    eligible: Sequence[str],
) -> Pick:
    """One pick; a caller with many keeps the Table of Picker(profile).table(shape, eligible)."""
    return Picker(profile).table(shape, eligible).pick(phase, batch, context, query)


def pick_at(point: Point, eligible: Sequence[str], measured: str = "") -> Pick | None:
    """What the timings of one point give; None where nothing eligible was timed there.

    A backend that was not timed keeps its place in the default order, and is then the pick where
    it stands first; one that was judged at this point and gave no time is passed over.
    """
    names, times = standing(point, eligible)
    if not names:
        return None
    chosen = times.get(names[0])
    if chosen is None:
        because = f"first in the default order, and not timed at {point}"
        return Pick(names[0], "", NO_KNOBS, "default", point, because)
    return Pick(
        chosen.backend,
        chosen.kernel,
        MappingProxyType(chosen.knobs) if chosen.knobs else NO_KNOBS,
        "measured",
        point,
        _because(chosen, [times[name] for name in names if name in times], point, measured),
        chosen.median_us,
    )


def _because(chosen: Timing, timed: Sequence[Timing], point: Point, measured: str) -> str:
    """How the chosen beat the next, or its own defaults where nothing else was timed."""
    day = point.measured or measured
    when = f"at {point}" + (f", measured {day}" if day else "")
    others = [timing for timing in timed if timing is not chosen]
    if others:
        rival = min(others, key=lambda timing: timing.median_us)
        return (
            f"{times_text(chosen.median_us / rival.median_us)} the time of {rival.backend} {when}"
        )
    share = chosen.median_us / default_us(chosen)
    return f"the only one timed, {times_text(share)} the time of its own defaults {when}"
