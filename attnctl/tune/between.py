"""Which setting of a backend stands for a point: what serves it and its neighbours best. No torch.

A profile's point is used for every batch that is nearer to it than to another. How well a launch
fills a device depends on the exact batch, so that what is fastest at a point may lose beside it: of
those that are within the tie here the one is taken that costs least around.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from attnctl.tune.finals import Final, Measured, tied
from attnctl.tune.workload import Load

NEAR = 1.0
"""Octaves at which a neighbour counts 1/e of the point itself."""

FAR = 2.5
"""Octaves beyond which it does not count."""


class Around:
    """The times of one layer shape's points on one size of the cache's blocks."""

    def __init__(self, points: Sequence[Measured], page: int | None) -> None:
        self._loads = [one.load for one in points]
        self._finals = [_by_backend(one.finals, page) for one in points]
        self._costs = [_costs([*one.finals, *one.dropped], page) for one in points]

    def winner(self, place: int, backend: str) -> Final | None:
        """The setting that a backend is given at one of the points; None where it has no time.

        Its default where that is within the tie.
        """
        kept = tied(self._finals[place].get(backend, ()))
        if not kept or kept[0].place == 0:
            return kept[0] if kept else None
        weights = self._weights(place)
        return min(kept, key=lambda one: self._cost(backend, setting_key(one), weights))

    def _cost(self, backend: str, key: str, weights: Sequence[tuple[int, float]]) -> float:
        """How much longer than the fastest it takes: the weighted mean of logarithms.

        Over the points where it was timed; one where a budget ended before says nothing.
        """
        total = mean = 0.0
        for place, weight in weights:
            cost = self._costs[place].get(backend, {}).get(key)
            if cost is not None:
                total, mean = total + weight, mean + weight * cost
        return mean / total

    def _weights(self, place: int) -> list[tuple[int, float]]:
        """The points that count, itself among them, and how much."""
        far = [octaves(self._loads[place], load) for load in self._loads]
        return [
            (other, math.exp(-((apart / NEAR) ** 2)))
            for other, apart in enumerate(far)
            if apart <= FAR
        ]


def octaves(one: Load, other: Load) -> float:
    """How far two workloads lie apart, as a profile's reader measures it; inf: another phase."""
    if one.phase != other.phase:
        return math.inf
    pairs = ((one.batch, other.batch), (one.context, other.context), (one.query, other.query))
    return math.hypot(*(math.log2(a / b) for a, b in pairs))


def _by_backend(finals: Iterable[Final], page: int | None) -> dict[str, list[Final]]:
    found: dict[str, list[Final]] = {}
    for one in finals:
        if one.page == page:
            found.setdefault(one.backend, []).append(one)
    return found


def _costs(finals: Iterable[Final], page: int | None) -> dict[str, Mapping[str, float]]:
    """By backend and setting how much longer than the backend's fastest it takes, a logarithm."""
    found: dict[str, Mapping[str, float]] = {}
    for backend, own in _by_backend(finals, page).items():
        least = min(one.median_us for one in own)
        found[backend] = {setting_key(one): math.log(one.median_us / least) for one in own}
    return found


def setting_key(one: Final) -> str:
    """The same text for the same kernel and knobs."""
    return f"{one.kernel} {sorted(one.knobs.items())}"
