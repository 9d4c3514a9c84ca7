"""The order of eligible backends that a profile's timings give for one layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from attnctl.layer import Layer
from attnctl.profile.document import Entry, Point, Profile, Shape, shape_of

TIE = 1.02
"""Within 2 % the earlier backend of the default order keeps its place."""


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
    ranked = _ranked(entry, timed)
    fastest, places = ranked[0], iter(ranked)
    names = tuple(next(places) if name in timed else name for name in eligible)
    because = {name: _because(entry, fastest, name, profile) for name in ranked[1:]}
    ahead = eligible[: eligible.index(fastest)]
    passed = frozenset(name for name in ahead if name in names[names.index(fastest) :])
    return Order(names, fastest, because, passed - set(timed))


def _shared_points(entry: Entry, timed: list[str]) -> list[Point]:
    """The points at which all of these were timed."""
    every = set(timed)
    return [p for p in entry.points if every <= {timing.backend for timing in p.timings}]


def _entry(profile: Profile, layer: Layer) -> Entry | None:
    shape = shape_of(layer)
    return next((entry for entry in profile.entries if _full(entry.shape) == shape), None)


def _full(shape: Shape) -> Shape:
    """The shape with its V width said, which is K's where it is left out."""
    if shape.head_size_v is not None:
        return shape
    return msgspec.structs.replace(shape, head_size_v=shape.head_size)


def _alive(entry: Entry, name: str, kernels: dict[str, str]) -> bool:
    timed, here = entry.kernels.get(name), kernels.get(name)
    return timed is None or here is None or timed == here


def _timed(entry: Entry, name: str) -> bool:
    return any(timing.backend == name for point in entry.points for timing in point.timings)


def _ranked(entry: Entry, timed: list[str]) -> list[str]:
    """By mean log time over the points that all of them have; ties keep the default order."""
    points = _shared_points(entry, timed)
    means = {name: _mean(points, name) for name in timed}
    left = list(timed)
    ranked = []
    while left:
        best = min(means[name] for name in left)
        first = next(name for name in left if means[name] <= best * TIE)
        ranked.append(first)
        left.remove(first)
    return ranked


def _mean(points: list[Point], name: str) -> float:
    """The weighted geometric mean of a backend's times over these points."""
    total = weight = 0.0
    for point in points:
        (time,) = (timing.median_us for timing in point.timings if timing.backend == name)
        total += point.weight * math.log(time)
        weight += point.weight
    return math.exp(total / weight)


def _because(entry: Entry, winner: str, loser: str, profile: Profile) -> str:
    ratios = []
    for point in entry.points:
        times = {timing.backend: timing.median_us for timing in point.timings}
        if winner in times and loser in times:
            ratios.append(f"{times[winner] / times[loser]:.2f}x its time at {point}")
    when = f", measured {profile.measured}" if profile.measured else ""
    shown = "; ".join(ratios[:3]) + (f" and {len(ratios) - 3} more" if len(ratios) > 3 else "")
    return shown + when
