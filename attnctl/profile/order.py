"""The order of eligible backends that a profile's timings give for one layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from attnctl.layer import Layer
from attnctl.profile.document import shape_of
from attnctl.profile.ranking import reordered
from attnctl.profile.values import Entry, Point, Profile


class Order(msgspec.Struct, frozen=True):
    """names: all of them in the measured order. fastest: the first of those that were timed.

    because: another timed backend -> how the fastest beat it. passed: backends that were not timed
    and before which the fastest came by taking the place of one that was.
    """

    names: tuple[str, ...]
    fastest: str
    because: dict[str, str]
    passed: frozenset[str] = frozenset()


def is_timed(profile: Profile, layer: Layer) -> bool:
    """True where the profile holds timings of this layer's shape."""
    return _entry(profile, layer) is not None


def measured_order(
    profile: Profile,
    layer: Layer,
    eligible: Sequence[str],
    kernels: dict[str, str] | None = None,
) -> Order | None:
    """The order of these backends for this layer; None where no two were timed at one point.

    The timed ones share out among them, fastest first, the places that they hold in the default
    order; one that was not timed keeps its own. eligible: names in the default order. kernels:
    backend -> hash of its kernel source here; timings of a backend whose hash differs are dead.
    """
    entry = _entry(profile, layer)
    if entry is None:
        return None
    hashes = kernels or {}
    timed = [name for name in eligible if _alive(entry, name, hashes) and _timed(entry, name)]
    if len(timed) < 2 or not _shared_points(entry, timed):
        return None
    shared = _shared_points(entry, timed)
    times = {name: _mean(shared, name) for name in timed}
    names = reordered(eligible, times)
    fastest = next(name for name in names if name in times)
    because = {name: _because(entry, fastest, name, profile) for name in timed if name != fastest}
    ahead = eligible[: eligible.index(fastest)]
    passed = frozenset(name for name in ahead if name in names[names.index(fastest) :])
    return Order(names, fastest, because, passed - set(timed))


def _shared_points(entry: Entry, timed: list[str]) -> list[Point]:
    """The points at which all of these were timed."""
    every = set(timed)
    return [p for p in entry.points if every <= {timing.backend for timing in p.timings}]


def _entry(profile: Profile, layer: Layer) -> Entry | None:
    shape = shape_of(layer).full
    return next((entry for entry in profile.entries if entry.shape.full == shape), None)


def _alive(entry: Entry, name: str, kernels: dict[str, str]) -> bool:
    timed, here = entry.kernels.get(name), kernels.get(name)
    return timed is None or here is None or timed == here


def _timed(entry: Entry, name: str) -> bool:
    return any(timing.backend == name for point in entry.points for timing in point.timings)


def _mean(points: list[Point], name: str) -> float:
    """The weighted geometric mean of a backend's times over these points."""
    total = weight = 0.0
    for point in points:
        (time,) = (timing.median_us for timing in point.timings if timing.backend == name)
        total += point.weight * math.log(time)
        weight += point.weight
    return math.exp(total / weight)


def _because(entry: Entry, winner: str, loser: str, profile: Profile) -> str:
    """Winner's time over loser's: at the one point, or its mean and its bounds over several."""
    points = [p for p in entry.points if p.timing(winner) and p.timing(loser)]
    days = {point.measured or profile.measured for point in points} - {""}
    when = f", measured {' to '.join(sorted({min(days), max(days)}))}" if days else ""
    ratios = [_ratio(point, winner, loser) for point in points]
    if len(points) == 1:
        return f"{ratios[0]:.2f}x its time at {points[0]}{when}"
    mean = _mean(points, winner) / _mean(points, loser)
    low, high = ratios.index(min(ratios)), ratios.index(max(ratios))
    bounds = ", ".join(f"{ratios[at]:.2f}x at {points[at]}" for at in dict.fromkeys((low, high)))
    return f"{mean:.2f}x its time over {len(points)} points ({bounds}){when}"


def _ratio(point: Point, winner: str, loser: str) -> float:
    one, other = point.timing(winner), point.timing(loser)
    return one.median_us / other.median_us if one and other else 1.0
