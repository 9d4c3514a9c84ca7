"""The order of eligible backends that a profile's timings give for one layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from attnctl.layer import Layer
from attnctl.profile.document import shape_of
from attnctl.profile.merge import without
from attnctl.profile.ranking import block_asked, out_at, reordered
from attnctl.profile.ratio import times_text
from attnctl.profile.values import Entry, Point, Profile

COVERED = 0.5
"""Share of the points of the best-timed backend below which another is not judged as a whole."""


class Order(msgspec.Struct, frozen=True):
    """names: all of them in the measured order. fastest: the first of those that were timed.

    because: another backend -> how the fastest beat it, by time or because it was out. passed:
    backends that were not timed and before which the fastest came by taking the place of one that
    was.
    """

    names: tuple[str, ...]
    fastest: str
    because: dict[str, str]
    passed: frozenset[str] = frozenset()


def is_timed(profile: Profile, layer: Layer) -> bool:
    """True where the profile holds timings of this layer's shape."""
    return entry_of(profile, layer) is not None


def cache_block(profile: Profile, layer: Layer, eligible: Sequence[str]) -> int | None:
    """Tokens in a block of the cache that this layer's timings ask for, if any do."""
    entry = entry_of(profile, layer)
    return None if entry is None else block_asked(entry.points, eligible)


def measured_order(
    profile: Profile,
    layer: Layer,
    eligible: Sequence[str],
    kernels: dict[str, str] | None = None,
) -> Order | None:
    """The order of these backends for this layer; None where the timings say nothing of it.

    The timed ones share out among them, fastest first, the places that they hold in the default
    order; one that was not timed, or at few points only, keeps its own. One that was out of the
    running at more points than it was timed at goes behind them. eligible: names in the default
    order. kernels: backend -> hash of its kernel source here; timings of another are dead.
    """
    entry = entry_of(profile, layer)
    if entry is None:
        return None
    entry = _living(entry, kernels or {})
    counts, missed = _counts(entry)
    out = [name for name in eligible if missed.get(name, 0) > counts.get(name, 0)]
    kept = [name for name in eligible if name not in out and name in counts]
    most = max((counts[name] for name in kept), default=0)
    timed = [name for name in kept if counts[name] >= COVERED * most]
    shared = _shared_points(entry, timed)
    if not timed or not shared or (len(timed) < 2 and not out):
        return None
    times = {name: _mean(shared, name) for name in timed}
    names = _behind(reordered(eligible, times), out, timed)
    fastest = next(name for name in names if name in times)
    because = {name: _because(entry, fastest, name, profile) for name in timed if name != fastest}
    points = len(entry.points)
    because |= {n: f"it was out of the running at {missed[n]} of {points} points" for n in out}
    ahead = eligible[: eligible.index(fastest)]
    passed = frozenset(name for name in ahead if name in names[names.index(fastest) :])
    return Order(names, fastest, because, passed - {*timed, *out})


def _behind(names: Sequence[str], out: Sequence[str], timed: Sequence[str]) -> tuple[str, ...]:
    """The names with those of `out` that stand before a timed one moved behind the last of them."""
    last = max(place for place, name in enumerate(names) if name in timed)
    moved = [name for name in names[:last] if name in out]
    kept = [name for name in names[: last + 1] if name not in moved]
    return (*kept, *moved, *names[last + 1 :])


def _shared_points(entry: Entry, timed: list[str]) -> list[Point]:
    """The points at which all of these were timed."""
    every = set(timed)
    return [p for p in entry.points if every <= {timing.backend for timing in p.timings}]


def entry_of(profile: Profile, layer: Layer) -> Entry | None:
    """The timings of this layer's shape."""
    shape = shape_of(layer).full
    return next((entry for entry in profile.entries if entry.shape.full == shape), None)


def _living(entry: Entry, kernels: dict[str, str]) -> Entry:
    """The entry less what was measured of kernels that are others here."""
    dead = {name for name, timed in entry.kernels.items() if kernels.get(name, timed) != timed}
    if not dead:
        return entry
    points = tuple(without(point, dead) for point in entry.points)
    return msgspec.structs.replace(entry, points=points)


def _counts(entry: Entry) -> tuple[dict[str, int], dict[str, int]]:
    """Backend -> at how many points it was timed, and at how many it was out of the running."""
    timed: dict[str, int] = {}
    out: dict[str, int] = {}
    for point in entry.points:
        for timing in point.timings:
            timed[timing.backend] = timed.get(timing.backend, 0) + 1
        for name in out_at(point):
            out[name] = out.get(name, 0) + 1
    return timed, out


def _mean(points: list[Point], name: str) -> float:
    """The weighted geometric mean of a backend's times over these points, where it was timed."""
    total = weight = 0.0
    for point in points:
        timing = point.timing(name)
        if timing is not None:
            total += point.weight * math.log(timing.median_us)
            weight += point.weight
    return math.exp(total / weight)


def _because(entry: Entry, winner: str, loser: str, profile: Profile) -> str:
    """Winner's time over loser's: at the one point, or its mean and its bounds over several."""
    points = [p for p in entry.points if p.timing(winner) and p.timing(loser)]
    days = {point.measured or profile.measured for point in points} - {""}
    when = f", measured {' to '.join(sorted({min(days), max(days)}))}" if days else ""
    ratios = [_ratio(point, winner, loser) for point in points]
    if len(points) == 1:
        return f"{times_text(ratios[0])} the time of {loser} at {points[0]}{when}"
    mean = _mean(points, winner) / _mean(points, loser)
    low, high = ratios.index(min(ratios)), ratios.index(max(ratios))
    bounds = ", ".join(
        f"{times_text(ratios[at])} at {points[at]}" for at in dict.fromkeys((low, high))
    )
    return f"{times_text(mean)} the time of {loser} over {len(points)} points ({bounds}){when}"


def _ratio(point: Point, winner: str, loser: str) -> float:
    one, other = point.timing(winner), point.timing(loser)
    return one.median_us / other.median_us if one and other else 1.0
