"""What the page and the picture show of one layer shape, as values."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from attnctl.profile.knob_text import knob_text
from attnctl.profile.page.roofline import Roof, floor_us
from attnctl.profile.ranking import in_order
from attnctl.profile.values import Entry, Point, Timing, tokens_text


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The winner at one point. lead: the next rival's time over its own, 1 where there is none."""

    winner: str
    time_us: float
    lead: float
    rival: str
    settings: str


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Winners by batch (down) and context (across); None where nothing was timed."""

    title: str
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    cells: tuple[tuple[Cell | None, ...], ...]


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """How near one backend comes to the roofline in one phase: 1 is the roofline itself.

    share: the geometric mean over its points; low, high: its worst and its best point.
    """

    backend: str
    share: float
    low: float
    high: float
    points: int


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """The bars of one phase. against: what 1 stands for."""

    phase: str
    against: str
    bars: tuple[Bar, ...]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One timing of one point. share: of the roofline, None where it is not known."""

    point: Point
    timing: Timing
    picked: bool
    share: float | None


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one layer shape. backends: all that were timed, in the default order."""

    entry: Entry
    backends: tuple[str, ...]
    grids: tuple[Grid, ...]
    bars: tuple[Bars, ...]
    rows: tuple[Row, ...]


def chart_of(entry: Entry, roof: Roof) -> Chart:
    """The chart of one shape of a canonical profile."""
    names = dict.fromkeys(t.backend for p in entry.points for t in in_order(p.timings, entry.order))
    backends = tuple(sorted(names, key=lambda name: _place(entry, name)))
    rows = tuple(_rows(entry, roof))
    return Chart(
        entry=entry,
        backends=backends,
        grids=tuple(_grids(entry)),
        bars=tuple(_bars(rows, backends, roof)),
        rows=rows,
    )


def _place(entry: Entry, name: str) -> tuple[int, str]:
    return (entry.order.index(name) if name in entry.order else len(entry.order), name)


def _grids(entry: Entry) -> Iterator[Grid]:
    groups: dict[str, list[Point]] = {}
    for point in entry.points:
        groups.setdefault(_title(point), []).append(point)
    for title, points in groups.items():
        batches = tuple(sorted({point.batch for point in points}))
        contexts = tuple(sorted({point.context for point in points}))
        at = {(point.batch, point.context): point for point in points}
        yield Grid(
            title=title,
            batches=batches,
            contexts=contexts,
            cells=tuple(
                tuple(_cell(at.get((batch, context))) for context in contexts) for batch in batches
            ),
        )


def _title(point: Point) -> str:
    if point.phase == "decode":
        return "decode" if point.query == 1 else f"decode, {point.query} tokens at once"
    if point.query == point.context:
        return "prefill of whole prompts"
    return f"prefill in chunks of {tokens_text(point.query)}"


def _cell(point: Point | None) -> Cell | None:
    won = point.timing(point.pick) if point else None
    if point is None or won is None:
        return None
    others = [timing for timing in point.timings if timing is not won]
    rival = min(others, key=lambda timing: timing.median_us, default=None)
    knobs = (knob_text(name, value) for name, value in won.knobs.items())
    return Cell(
        winner=won.backend,
        time_us=won.median_us,
        lead=rival.median_us / won.median_us if rival else 1.0,
        rival=rival.backend if rival else "",
        settings=" ".join(filter(None, (won.kernel, *knobs))),
    )


def _rows(entry: Entry, roof: Roof) -> Iterator[Row]:
    for point in entry.points:
        floor = floor_us(entry.shape, point, roof)
        for timing in point.timings:
            share = None if floor is None else floor / timing.median_us
            yield Row(point=point, timing=timing, picked=timing.backend == point.pick, share=share)


def _bars(rows: tuple[Row, ...], backends: tuple[str, ...], roof: Roof) -> Iterator[Bars]:
    known = roof.bandwidth_gbps is not None
    for phase in dict.fromkeys(row.point.phase for row in rows):
        of_phase = [row for row in rows if row.point.phase == phase]
        best: dict[tuple[str, int, int, int], float] = {}
        for row in of_phase:
            place = row.point.place
            best[place] = min(best.get(place, math.inf), row.timing.median_us)
        bars = []
        for name in backends:
            shares = [
                row.share if row.share is not None else best[row.point.place] / row.timing.median_us
                for row in of_phase
                if row.timing.backend == name
            ]
            if shares:
                bars.append(_bar(name, shares))
        against = "the roofline" if known else "the fastest (the bandwidth is not known)"
        yield Bars(phase=phase, against=against, bars=tuple(bars))


def _bar(name: str, shares: list[float]) -> Bar:
    mean = math.exp(sum(map(math.log, shares)) / len(shares))
    return Bar(backend=name, share=mean, low=min(shares), high=max(shares), points=len(shares))
