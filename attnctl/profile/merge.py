"""The union of profiles of one device: shape by shape, point by point, backend by backend.

Tunes that chose other sizes of the cache's blocks for one shape are settled by what was timed on
both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from attnctl.exits import InputError
from attnctl.profile.match import same_key
from attnctl.profile.ranking import block_asked
from attnctl.profile.values import Entry, Point, Profile, Shape

COMPILERS = ("torch", "triton")
LATEST = "9999-12-31"
"""Stands for the day of a point that names none: its document's, which is the latest."""


def merge(
    older: Profile,
    newer: Profile,
    *,
    in_order: bool = False,
    here: Mapping[str, str] | None = None,
) -> Profile:
    """Both profiles as one; where both timed one thing, the one that was measured later counts.

    On the same day that is `newer`; with in_order always, whatever a clock said. Timings of a
    kernel whose source the later one knows to have changed go, unless that of the earlier is the
    one that is here: backend -> its hash. Raises InputError where they are of two devices, torches
    or Tritons.
    """
    check_mergeable(older, newer)
    if older.measured > newer.measured and not in_order:
        older, newer = newer, older
    day = max(older.measured, newer.measured)
    dated = [_dated(entry, one.measured, day) for one in (older, newer) for entry in one.entries]
    entries = united(dated, by_day=not in_order, here=here)
    return msgspec.structs.replace(
        newer,
        measured=day,
        memory_bytes=newer.memory_bytes or older.memory_bytes,
        conditions={**older.conditions, **newer.conditions},
        entries=tuple(entries),
        bad_entries=(*older.bad_entries, *newer.bad_entries),
    )


def check_mergeable(one: Profile, other: Profile) -> None:
    """InputError names what keeps two profiles apart."""
    if not same_key(one.key, other.key):
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


def united(
    entries: Iterable[Entry], *, by_day: bool = False, here: Mapping[str, str] | None = None
) -> list[Entry]:
    """One entry per shape, in the order first met; later ones win.

    by_day: of two points at one place the one that names the later day wins; one that names none
    is of the latest. here: as merge takes it.
    """
    found: dict[Shape, Entry] = {}
    for entry in entries:
        shape = entry.shape.full
        if shape in found:
            found[shape] = _join(found[shape], entry, by_day, here or {})
        else:
            points = _points(entry.points, by_day)
            found[shape] = msgspec.structs.replace(entry, shape=shape, points=points)
    return list(found.values())


def _join(older: Entry, newer: Entry, by_day: bool, here: Mapping[str, str]) -> Entry:
    changed = {
        name for name, hashed in newer.kernels.items() if older.kernels.get(name, hashed) != hashed
    }
    living = {name for name in changed if older.kernels[name] == here.get(name)}
    points = (
        *(without(point, changed - living) for point in older.points),
        *(without(point, living) for point in newer.points),
    )
    order = (*newer.order, *(name for name in older.order if name not in newer.order))
    return msgspec.structs.replace(
        newer,
        shape=older.shape,
        points=_on_one_size(_points(points, by_day), order),
        kernels={**older.kernels, **newer.kernels, **{name: here[name] for name in living}},
        order=order,
        gain=None,
        ci=None,
    )


def _points(points: Iterable[Point], by_day: bool) -> tuple[Point, ...]:
    found: dict[tuple[str, int, int, int], Point] = {}
    for point in points:
        before = found.get(point.place)
        if before is None:
            found[point.place] = point
        elif by_day and _day(before) > _day(point):
            found[point.place] = _join_points(point, before)
        else:
            found[point.place] = _join_points(before, point)
    return tuple(point for point in found.values() if point.timings or point.rejected)


def _on_one_size(points: tuple[Point, ...], order: Sequence[str]) -> tuple[Point, ...]:
    """The points with what they have of the size of blocks that they ask for together in front."""
    timed = {one.backend: None for point in points for one in point.timings}
    named = dict.fromkeys((*order, *timed))
    asked = block_asked(points, [name for name in named if name in timed])
    return tuple(_in_front(point, asked) for point in points)


def _in_front(point: Point, tokens: int | None) -> Point:
    """The point with each backend's timing on blocks of this size, where it has one beside."""
    found = {one.backend: one for one in point.others if one.block_size == tokens}
    behind = [one for one in point.timings if one.block_size != tokens and one.backend in found]
    if not behind:
        return point
    moved = {one.backend: found[one.backend] for one in behind}
    return msgspec.structs.replace(
        point,
        timings=tuple(moved.get(one.backend, one) for one in point.timings),
        others=(*(one for one in point.others if one not in moved.values()), *behind),
    )


def _day(point: Point) -> str:
    return point.measured or LATEST


def _join_points(older: Point, newer: Point) -> Point:
    """Timings by backend; a backend that the newer one timed brings its own rejects along.

    What the older one timed of it on another size of the cache's blocks is kept beside.
    """
    timed = {timing.backend for timing in newer.timings}
    seen = timed | {one.backend for one in newer.rejected}
    kept = tuple(t for t in older.timings if t.backend not in timed)
    beside = (*older.others, *(t for t in older.timings if t.backend in timed), *newer.others)
    places = {one.place for one in (*kept, *newer.timings)}
    others = {one.place: one for one in beside if one.place not in places}
    return msgspec.structs.replace(
        newer,
        timings=(*kept, *newer.timings),
        others=tuple(others.values()),
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
        others=tuple(t for t in point.others if t.backend not in gone),
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
