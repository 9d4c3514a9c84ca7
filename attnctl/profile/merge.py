"""The union of profiles of one device: shape by shape, point by point, backend by backend."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from attnctl.exits import InputError
from attnctl.profile.values import Entry, Point, Profile, Shape

COMPILERS = ("torch", "triton")


def merge(older: Profile, newer: Profile) -> Profile:
    """Both profiles as one; where both timed one thing, the one that was measured later counts.

    On the same day that is `newer`. Timings of a kernel whose source the later one knows to have
    changed go. Raises InputError where they are of two devices, torches or Tritons.
    """
    check_mergeable(older, newer)
    if older.measured > newer.measured:
        older, newer = newer, older
    day = newer.measured
    entries = united((*(_dated(e, older.measured, day) for e in older.entries), *newer.entries))
    return msgspec.structs.replace(
        newer,
        memory_bytes=newer.memory_bytes or older.memory_bytes,
        conditions={**older.conditions, **newer.conditions},
        entries=tuple(entries),
        bad_entries=(*older.bad_entries, *newer.bad_entries),
    )


def check_mergeable(one: Profile, other: Profile) -> None:
    """InputError names what keeps two profiles apart."""
    if one.key != other.key:
        raise InputError(
            f"{other.name}: it was measured on {other.key} and {one.name} on {one.key}: "
            "merge profiles of one device only"
        )
    for field in COMPILERS:
        here, there = getattr(one.versions, field), getattr(other.versions, field)
        if here != there:
            raise InputError(
                f"{other.name}: versions.{field} is {there or 'not stated'} and {one.name} has "
                f"{here or 'not stated'}: times of two compilers do not mix; keep two files"
            )


def united(entries: Iterable[Entry]) -> list[Entry]:
    """One entry per shape, in the order first met; later ones win."""
    found: dict[Shape, Entry] = {}
    for entry in entries:
        shape = entry.shape.full
        found[shape] = _join(found[shape], entry) if shape in found else _alone(entry, shape)
    return list(found.values())


def _alone(entry: Entry, shape: Shape) -> Entry:
    return msgspec.structs.replace(entry, shape=shape, points=_points(entry.points))


def _join(older: Entry, newer: Entry) -> Entry:
    changed = {
        name for name, hashed in newer.kernels.items() if older.kernels.get(name, hashed) != hashed
    }
    kept = (without(point, changed) for point in older.points)
    order = (*newer.order, *(name for name in older.order if name not in newer.order))
    return msgspec.structs.replace(
        newer,
        shape=older.shape,
        points=_points((*kept, *newer.points)),
        kernels={**older.kernels, **newer.kernels},
        order=order,
        gain=None,
        ci=None,
    )


def _points(points: Iterable[Point]) -> tuple[Point, ...]:
    found: dict[tuple[str, int, int, int], Point] = {}
    for point in points:
        before = found.get(point.place)
        found[point.place] = point if before is None else _join_points(before, point)
    return tuple(point for point in found.values() if point.timings or point.rejected)


def _join_points(older: Point, newer: Point) -> Point:
    """Timings by backend; a backend that the newer one timed brings its own rejects along."""
    timed = {timing.backend for timing in newer.timings}
    seen = timed | {one.backend for one in newer.rejected}
    return msgspec.structs.replace(
        newer,
        timings=(*(t for t in older.timings if t.backend not in timed), *newer.timings),
        rejected=(*(r for r in older.rejected if r.backend not in seen), *newer.rejected),
        pick="",
    )


def without(point: Point, backends: Iterable[str]) -> Point:
    """The point less what was timed or rejected of these backends."""
    gone = frozenset(backends)
    if not gone:
        return point
    return msgspec.structs.replace(
        point,
        timings=tuple(t for t in point.timings if t.backend not in gone),
        rejected=tuple(r for r in point.rejected if r.backend not in gone),
    )


def _dated(entry: Entry, day: str, newest: str) -> Entry:
    """The entry with its own day at each point, where the document will say another."""
    if day == newest or not day:
        return entry
    points = tuple(
        point if point.measured else msgspec.structs.replace(point, measured=day)
        for point in entry.points
    )
    return msgspec.structs.replace(entry, points=points)
