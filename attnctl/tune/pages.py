"""Which size of the cache's blocks a layer shape is given: one serves all its points. No torch.

At each point where several sizes were raced, a size costs what the fastest backend takes on it: the
backends share the cache. Over the points the logarithms of those times are averaged by the points'
weights, so that each counts by how often it is met and not by how long it takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

from attnctl.profile.ranking import MOST_LOST
from attnctl.tune.exchange import Site
from attnctl.tune.finals import SURE, TIE, Final, Measured, winner

HOST_TIE = 1.03
"""On a processor: where a batch's cache comes to lie moves all times of a point alike, which its
rounds do not show, by a few per cent; over a dozen points of it about one is left."""

DOUBT = 0.04
"""The logarithm of the gain of another block size that is believed however much points disagree."""

PRESENT = 0.75
"""The share of a phase's raced weight at which a size must have a time."""

APART = 5
"""Of how many points of a shape and phase one races every size."""

LEAST = 12
"""Points of a shape that race every size, where it has as many."""


def tie_of(site: Site) -> float:
    """How many times as fast another size must be to be worth a change of the cache."""
    return TIE if site.shared_memory_bytes else HOST_TIE


def best_page(points: Sequence[Measured], tie: float) -> int | None:
    """Tokens in a block; 0 for layers that keep states. None: nothing has a time.

    The default's size, which is met first, keeps its place unless another is faster beyond the tie,
    and by more than the points' disagreement lets doubt, or by DOUBT, and nowhere slower than
    another by MOST_LOST.
    """
    sizes = list(dict.fromkeys(one.page for point in points for one in point.finals))
    raced = [(point, _by_page(point)) for point in points if len(point.pages) > 1]
    usable = [size for size in sizes if _is_present(size, raced)]
    if not usable:
        return sizes[0] if sizes else None
    steady = (size for size in usable[1:] if _worst(size, raced) <= math.log(MOST_LOST))
    usable = [usable[0], *steady]

    def behind(page: int, other: int) -> tuple[float, float]:
        """The logarithm of how many times as long it takes, and its standard error."""
        logs = [
            (math.log(times[page].median_us / times[other].median_us), point.load.weight)
            for point, times in raced
            if page in times and other in times
        ]
        return _mean(logs) if logs else (0.0, 0.0)

    best = min(usable, key=lambda page: behind(page, usable[0])[0])

    def keeps(page: int) -> bool:
        mean, error = behind(page, best)
        return mean <= max(math.log(tie), min(SURE * error, DOUBT))

    return next(page for page in usable if keeps(page))


def _is_present(size: int, raced: Sequence[tuple[Measured, dict[int, Final]]]) -> bool:
    """Whether it has times at nearly all raced points of every phase.

    One that is wrong or does not fit in prefill must not be chosen for what it gains in decode.
    """
    for phase in {point.load.phase for point, _ in raced}:
        weights = [
            (point.load.weight, size in times)
            for point, times in raced
            if point.load.phase == phase
        ]
        timed = sum(weight for weight, has in weights if has)
        if timed < PRESENT * sum(weight for weight, _ in weights):
            return False
    return bool(raced)


def _worst(size: int, raced: Sequence[tuple[Measured, dict[int, Final]]]) -> float:
    """The logarithm of how much longer than another it takes at most.

    Points that are met less than the average do not count.
    """
    usual = sum(point.load.weight for point, _ in raced) / len(raced)
    return max(
        (
            math.log(times[size].median_us / min(one.median_us for one in times.values()))
            for point, times in raced
            if size in times and point.load.weight >= usual
        ),
        default=0.0,
    )


def _mean(logs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The weighted mean and its standard error, from how much they differ."""
    total = sum(weight for _, weight in logs)
    mean = sum(weight * one for one, weight in logs) / total
    return mean, math.hypot(*(weight * (one - mean) for one, weight in logs)) / total


def _by_page(point: Measured) -> dict[int, Final]:
    """The winner of all backends on each size that was raced here."""
    return {
        page: cast("Final", winner(group))
        for page in point.pages
        if (group := [one for one in point.finals if one.page == page])
    }


def probes(places: Iterable[tuple[str, str]]) -> set[int]:
    """Which tasks race every size, by their place: of each shape and phase every fifth.

    places: of each task its shape and phase. A shape of few points races all sizes at more of them,
    so that there are LEAST where it has as many.
    """
    groups: dict[str, dict[str, list[int]]] = {}
    for place, (shape, phase) in enumerate(places):
        groups.setdefault(shape, {}).setdefault(phase, []).append(place)
    found: set[int] = set()
    for phases in groups.values():
        step = max(1, min(APART, sum(map(len, phases.values())) // LEAST))
        for listed in phases.values():
            found |= set(listed[::step])
    return found
