"""Which setting of a backend stands for a point: what serves it and its neighbours best. No torch.

A profile's point is used for every batch that is nearer to it than to another. How well a launch
fills a device depends on the exact batch, so that a setting may be the fastest at a point and lose
at the next: of those that were timed here the one is kept that costs least over this point and its
neighbours, each weighted by how near it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from attnctl.tune.finals import SURE, Final, Measured
from attnctl.tune.noise import error_us
from attnctl.tune.workload import Load

NEAR = 0.7
"""Octaves at which a neighbour counts 1/e of the point itself."""

FAR = 1.6
"""Octaves beyond which it does not count."""

CLOSE = math.log(1.01)
"""The logarithm within which the earlier setting is kept."""

Cost = tuple[float, float]
"""How much longer a setting takes than the backend's fastest, as a logarithm, and its error."""


class Around:
    """The times of one layer shape's points on one size of the cache's blocks."""

    def __init__(self, points: Sequence[Measured], page: int | None) -> None:
        self._loads = [one.load for one in points]
        self._costs = [_costs([*one.finals, *one.dropped], page) for one in points]

    def winner(self, place: int, backend: str) -> Final | None:
        """The setting that a backend is given at one of the points; None where it has no time."""
        here = self._costs[place].get(backend)
        if not here:
            return None
        weights = self._weights(place)
        scores = {key: self._score(backend, key, weights) for key in here}
        least = min(scores, key=lambda key: scores[key][0])

        def keeps(key: str) -> bool:
            (score, error), (best, other) = scores[key], scores[least]
            return score <= best + max(CLOSE, SURE * math.hypot(error, other))

        return min((one for key, (one, _) in here.items() if keeps(key)), key=lambda one: one.place)

    def _score(self, backend: str, key: str, weights: Sequence[tuple[int, float]]) -> Cost:
        """The weighted mean over the points where it was timed, and its error."""
        total = mean = square = 0.0
        for place, weight in weights:
            found = self._costs[place].get(backend, {}).get(key)
            if found is not None:
                _, (cost, error) = found
                total, mean = total + weight, mean + weight * cost
                square += (weight * error) ** 2
        return mean / total, math.sqrt(square) / total

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


def _costs(
    finals: Iterable[Final], page: int | None
) -> Mapping[str, Mapping[str, tuple[Final, Cost]]]:
    """By backend and setting."""
    found: dict[str, dict[str, Final]] = {}
    for one in finals:
        if one.page == page:
            found.setdefault(one.backend, {})[setting_key(one)] = one
    return {backend: _relative(own) for backend, own in found.items()}


def _relative(own: Mapping[str, Final]) -> dict[str, tuple[Final, Cost]]:
    least = min(one.median_us for one in own.values())
    return {
        key: (
            one,
            (math.log(one.median_us / least), error_us(one.iqr_us, one.runs) / one.median_us),
        )
        for key, one in own.items()
    }


def setting_key(one: Final) -> str:
    """The same text for the same kernel and knobs."""
    return f"{one.kernel} {sorted(one.knobs.items())}"
