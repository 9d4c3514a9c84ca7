"""The order of eligible backends that a profile's timings give for one layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from attnctl.layer import Layer
from attnctl.profile.document import Entry, Profile, shape_of

TIE = 1.02
"""Within 2 % the earlier backend of the default order keeps its place."""


class Order(msgspec.Struct, frozen=True):
    """names: fastest first. because: beaten backend -> the winner's time over its time."""

    names: tuple[str, ...]
    because: dict[str, str]


def measured_order(
    profile: Profile,
    layer: Layer,
    eligible: Sequence[str],
    kernels: dict[str, str] | None = None,
) -> Order | None:
    """The measured order of these backends for this layer; None where its shape was not timed.

    eligible: names in the default order. kernels: backend -> hash of its kernel source here;
    timings of a backend whose hash differs are dead.
    """
    entry = _entry(profile, layer)
    if entry is None:
        return None
    hashes = kernels or {}
    timed = [name for name in eligible if _alive(entry, name, hashes) and _timed(entry, name)]
    if len(timed) < 2:
        return None
    ranked = _ranked(entry, timed)
    winner = ranked[0]
    names = (*ranked, *(name for name in eligible if name not in timed))
    because = {name: _because(entry, winner, name, profile) for name in ranked[1:]}
    untimed = "it was not timed for this shape; the winner was"
    because.update({name: untimed for name in names if name not in timed})
    return Order(names, because)


def _entry(profile: Profile, layer: Layer) -> Entry | None:
    shape = shape_of(layer)
    return next((entry for entry in profile.entries if entry.shape == shape), None)


def _alive(entry: Entry, name: str, kernels: dict[str, str]) -> bool:
    timed, here = entry.kernels.get(name), kernels.get(name)
    return timed is None or here is None or timed == here


def _timed(entry: Entry, name: str) -> bool:
    return any(timing.backend == name for point in entry.points for timing in point.timings)


def _ranked(entry: Entry, timed: list[str]) -> list[str]:
    """By mean log time over the points that all of them have; ties keep the default order."""
    left = list(timed)
    ranked = []
    while left:
        means = {name: _mean(entry, name, timed) for name in left}
        best = min(means.values())
        first = next(name for name in left if means[name] <= best * TIE)
        ranked.append(first)
        left.remove(first)
    return ranked


def _mean(entry: Entry, name: str, timed: list[str]) -> float:
    """The weighted geometric mean of a backend's times over the points that all were timed at."""
    total = weight = 0.0
    for point in entry.points:
        times = {timing.backend: timing.median_us for timing in point.timings}
        if all(other in times for other in timed):
            total += point.weight * math.log(times[name])
            weight += point.weight
    return math.exp(total / weight) if weight else math.inf


def _because(entry: Entry, winner: str, loser: str, profile: Profile) -> str:
    ratios = []
    for point in entry.points:
        times = {timing.backend: timing.median_us for timing in point.timings}
        if winner in times and loser in times:
            ratios.append(f"{times[winner] / times[loser]:.2f}x its time at {point}")
    when = f", measured {profile.measured}" if profile.measured else ""
    shown = "; ".join(ratios[:3]) + (f" and {len(ratios) - 3} more" if len(ratios) > 3 else "")
    return shown + when
