"""A profile in its one written form: sorted, what follows from the timings worked out, no clock.

The same measurements give the same bytes, so that a profile can be kept under version control.
"""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.profile.ranking import gain_of, in_order, pick_of
from attnctl.profile.values import SCHEMA, Entry, Point, Profile, Shape, Timing

LINE = 160
"""Characters up to which a value is written on one line."""
NANOSECOND = 3
"""Decimals that are kept of a time in microseconds."""


def canonical(profile: Profile) -> Profile:
    """The profile as it is written: one entry per shape, one point per place, picks and gains.

    Of two entries or points for one thing the later adds to the earlier, and wins where both say
    something. What was not read is left out.
    """
    from attnctl.profile.merge import united

    entries = [_entry(entry) for entry in united(profile.entries)]
    return Profile(
        schema=SCHEMA,
        name=profile.name,
        key=profile.key,
        versions=profile.versions,
        measured=profile.measured,
        memory_bytes=profile.memory_bytes,
        conditions=dict(sorted(profile.conditions.items())),
        entries=tuple(sorted(entries, key=lambda entry: _shape_key(entry.shape))),
    )


def encode(profile: Profile) -> bytes:
    """The canonical document as JSON, short values on one line each."""
    document = msgspec.to_builtins(canonical(profile))
    del document["bad_entries"]
    return "".join((*_lines(document, 0), "\n")).encode()


def _entry(entry: Entry) -> Entry:
    points = (_point(point, entry.order) for point in entry.points)
    ordered = msgspec.structs.replace(
        entry,
        points=tuple(sorted(points, key=lambda point: point.place)),
        kernels=dict(sorted(entry.kernels.items())),
    )
    gained = gain_of(ordered)
    if gained is None:
        return msgspec.structs.replace(ordered, gain=None, ci=None)
    gain, (low, high) = gained
    return msgspec.structs.replace(ordered, gain=round(gain, 4), ci=(round(low, 4), round(high, 4)))


def _point(point: Point, order: tuple[str, ...]) -> Point:
    timings = tuple(_timing(timing) for timing in in_order(point.timings, order))
    rejected = (
        msgspec.structs.replace(one, knobs=dict(sorted(one.knobs.items())))
        for one in point.rejected
    )
    cleaned = msgspec.structs.replace(
        point,
        timings=timings,
        others=tuple(map(_timing, in_order(sorted(point.others, key=_size), order))),
        rejected=tuple(sorted(rejected, key=lambda one: msgspec.json.encode(one))),
    )
    picked = pick_of(cleaned, order)
    return msgspec.structs.replace(cleaned, pick=picked.backend if picked else "")


def _size(timing: Timing) -> int:
    return timing.block_size or 0


def _timing(timing: Timing) -> Timing:
    return msgspec.structs.replace(
        timing,
        median_us=_rounded(timing.median_us),
        iqr_us=round(timing.iqr_us, NANOSECOND),
        default_us=None if timing.default_us is None else _rounded(timing.default_us),
        host_us=None if timing.host_us is None else _rounded(timing.host_us),
        knobs=dict(sorted(timing.knobs.items())),
    )


def _rounded(time_us: float) -> float:
    """To a nanosecond, and never to nothing."""
    return round(time_us, NANOSECOND) or time_us


def _shape_key(shape: Shape) -> bytes:
    return msgspec.json.encode(shape)


def _lines(value: Any, depth: int) -> list[str]:
    """JSON text; what is short goes on one line, the rest is broken up by one level."""
    flat = msgspec.json.encode(value).decode()
    if (depth and len(flat) + depth <= LINE) or not isinstance(value, dict | list | tuple):
        return [flat]
    named = [("", one) for one in value]
    if isinstance(value, dict):
        named = [(f"{msgspec.json.encode(name).decode()}: ", one) for name, one in value.items()]
    pad = "\n" + " " * depth
    found = [flat[0]]
    for place, (name, one) in enumerate(named):
        found += [f"{',' if place else ''}{pad} {name}", *_lines(one, depth + 1)]
    return [*found, pad, flat[-1]]
