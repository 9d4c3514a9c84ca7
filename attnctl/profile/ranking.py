"""Which backend the timings of one point give, and what a profile's picks gain over the default."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence

from attnctl.profile.values import Entry, Point, Timing

TIE = 1.02
"""Within 2 % the earlier backend of the default order keeps its place."""
ROUNDING = 1 + 1e-9
"""What 2.346 may differ from 2.3 x 1.02 by, that are a tie as 51 and 50 are."""
Z95 = 1.96
"""Standard errors to each side that hold 95 % of a normal distribution."""
MOST_LOST = 1.1
"""How many times another's time a size of blocks may take at one point and still displace it: what
gains in the mean may be very uneven."""
BLOCK_SIZE = "block_size"
"""The knob that is the cache's, which the caller lays out."""
MEDIAN_ERROR = 0.929
"""Standard error of a median of n, as a share of IQR / sqrt(n): 1.253 sigma, IQR = 1.349 sigma."""

_NONE: frozenset[str] = frozenset()


def first_within_tie(times: Iterable[tuple[str, float]]) -> str:
    """The earliest of these names whose time is within TIE of the least. At least one is given."""
    given = tuple(times)
    best = min(time for _, time in given)
    return next(name for name, time in given if time <= best * TIE * ROUNDING)


def ranked(times: Mapping[str, float]) -> list[str]:
    """The names of these times, fastest first; ties keep the order in which they are given."""
    left, found = list(times), []
    while left:
        first = first_within_tie((name, times[name]) for name in left)
        found.append(first)
        left.remove(first)
    return found


def reordered(eligible: Sequence[str], times: Mapping[str, float]) -> tuple[str, ...]:
    """The eligible names with those that have a time, fastest first, on the places they held.

    One without a time keeps its own place. eligible: in the default order.
    """
    places = iter(ranked({name: times[name] for name in eligible if name in times}))
    return tuple(next(places) if name in times else name for name in eligible)


def out_at(point: Point) -> frozenset[str]:
    """The backends that were tried or judged here and gave nothing to time: wrong, crashed, ...

    One of which only some settings were rejected has a timing, and is none of them.
    """
    if not point.rejected:
        return _NONE
    judged = {one.backend for one in point.rejected}
    return frozenset(judged - {timing.backend for timing in point.timings})


def standing(point: Point, eligible: Sequence[str]) -> tuple[tuple[str, ...], dict[str, Timing]]:
    """The eligible backends as the timings of one point order them, and their timings there.

    One that was not timed keeps its place in the default order; one that was judged at this point
    and gave no time is passed over. Nothing where no eligible one was timed.
    """
    out = out_at(point)
    kept = [name for name in eligible if name not in out] if out else eligible
    times = {timing.backend: timing for timing in point.timings if timing.backend in kept}
    if not times:
        return (), times
    return reordered(kept, {name: timing.median_us for name, timing in times.items()}), times


def block_asked(points: Sequence[Point], eligible: Sequence[str]) -> int | None:
    """Tokens in a block of the cache that the timed points ask for: one cache serves all of them.

    A tune asks for one. Of several, as in an entry that was merged, it is the one that most of the
    weight asks for, unless another took less time where both were timed. None: the size that a
    backend has by itself.
    """
    weights: dict[int | None, float] = {}
    for point in points:
        first = first_of(point.timings, out_at(point), eligible)
        if first is not None:
            weights[first.block_size] = weights.get(first.block_size, 0.0) + point.weight
    if len(weights) < 2:
        return next(iter(weights), None)
    asked, *others = sorted(weights, key=weights.__getitem__, reverse=True)
    for size in others:
        if _is_faster(size, asked, points, eligible):
            asked = size
    return asked


def _is_faster(
    size: int | None, other: int | None, points: Iterable[Point], eligible: Sequence[str]
) -> bool:
    """By more than a tie in the mean of the points with both, and at none slower by MOST_LOST."""
    gains = [(point.weight, _gain(size, other, point, eligible)) for point in points]
    known = [(weight, gain) for weight, gain in gains if gain is not None]
    if not known or min(gain for _, gain in known) < -math.log(MOST_LOST):
        return False
    mean = sum(weight * gain for weight, gain in known) / sum(weight for weight, _ in known)
    return mean > math.log(TIE)


def _gain(
    size: int | None, other: int | None, point: Point, eligible: Sequence[str]
) -> float | None:
    """The logarithm of the time on another size over that on this one, each of its fastest backend.

    None: no backend was timed on both.
    """
    times = {one.place: one.median_us for one in (*point.timings, *point.others)}
    out = out_at(point)
    both = [
        (times[name, size], times[name, other])
        for name in eligible
        if name not in out and (name, size) in times and (name, other) in times
    ]
    if not both:
        return None
    return math.log(min(slow for _, slow in both) / min(fast for fast, _ in both))


def first_of(
    timings: Iterable[Timing], out: Container[str], eligible: Sequence[str]
) -> Timing | None:
    """The timing of the backend that `standing` puts first; None where that one has none.

    timings: of one point. out: as out_at gives it.
    """
    kept = [name for name in eligible if name not in out] if out else eligible
    times = {one.backend: one for one in timings if one.backend in kept}
    if not times or kept[0] not in times:
        return None
    return times[first_within_tie((name, times[name].median_us) for name in kept if name in times)]


def in_order(timings: Iterable[Timing], order: Sequence[str]) -> list[Timing]:
    """The timings by their backend's place in the default order; others follow by name."""
    places = {name: place for place, name in enumerate(order)}
    return sorted(timings, key=lambda one: (places.get(one.backend, len(places)), one.backend))


def pick_of(point: Point, order: Sequence[str]) -> Timing | None:
    """The timing that wins at one point; None where nothing was timed."""
    if not point.timings:
        return None
    timings = in_order(point.timings, order)
    name = first_within_tie((one.backend, one.median_us) for one in timings)
    return point.timing(name)


def default_us(timing: Timing) -> float:
    """The backend's time with the bundled kernel and defaults."""
    return timing.median_us if timing.default_us is None else timing.default_us


def gain_of(entry: Entry) -> tuple[float, tuple[float, float]] | None:
    """What the picks gain over the default backend with its defaults, and the 95 % bounds.

    The weighted geometric mean over the points of default time / picked time; None where nothing
    was timed. The bounds come from each timing's interquartile range and number of runs.
    """
    total = variance = weights = 0.0
    for point in entry.points:
        picked = pick_of(point, entry.order)
        if picked is None:
            continue
        usual = in_order(point.timings, entry.order)[0]
        total += point.weight * math.log(default_us(usual) / picked.median_us)
        variance += point.weight**2 * (_error(usual) ** 2 + _error(picked) ** 2)
        weights += point.weight
    if not weights:
        return None
    mean, error = total / weights, math.sqrt(variance) / weights
    return math.exp(mean), (math.exp(mean - Z95 * error), math.exp(mean + Z95 * error))


def _error(timing: Timing) -> float:
    """The relative standard error of a median; beyond 1 nothing is known of it."""
    error = MEDIAN_ERROR * timing.iqr_us / timing.median_us / math.sqrt(max(1, timing.runs))
    return min(1.0, error)
