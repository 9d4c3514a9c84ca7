"""Puts a tune's result into a profile file that others may be writing too. No torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import msgspec

from attnctl.exits import InputError
from attnctl.files import MissingFileError, as_json, reason, write_whole
from attnctl.profile.document import Entry, Point, Profile, read_profile


def store(path: str, new: Profile) -> Profile:
    """Adds the new points to the file's, under a lock, and gives what it now holds.

    A point that was there is replaced; entries whose kernels changed since lose their old points.
    InputError: the file holds another device's profile, or other versions', or none.
    """
    with _locked(path):
        try:
            old = read_profile(path)
        except MissingFileError:
            whole = new
        else:
            whole = joined(old, new, path)
        write_whole(path, document(whole))
    return whole


def document(profile: Profile) -> bytes:
    """The file's bytes: the same for the same measurements."""
    plain = msgspec.to_builtins(profile)
    del plain["bad_entries"]
    return as_json(plain)


def refuse_foreign(path: str, key: object) -> None:
    """InputError, before hours of measuring: the file is another device's, or no profile."""
    try:
        old = read_profile(path)
    except MissingFileError:
        return
    _check_key(old, key, path)


def joined(old: Profile, new: Profile, path: str) -> Profile:
    """Both profiles' points; the new one's where both have one."""
    _check_key(old, new.key, path)
    for field in ("torch", "triton"):
        was, now = getattr(old.versions, field), getattr(new.versions, field)
        if was != now:
            raise InputError(
                f"{path}: it was timed with {field} {was}, and this with {now}: name another "
                "--output"
            )
    entries = list(old.entries)
    for entry in new.entries:
        place = next((n for n, one in enumerate(entries) if one.shape == entry.shape), None)
        if place is None:
            entries.append(entry)
        else:
            entries[place] = _joined_entry(entries[place], entry)
    return msgspec.structs.replace(new, entries=tuple(entries), name=old.name)


def _joined_entry(old: Entry, new: Entry) -> Entry:
    fresh = {_place(point): point for point in new.points}
    dead = {name for name, hashed in new.kernels.items() if old.kernels.get(name, hashed) != hashed}
    points = []
    for point in old.points:
        kept = _without(point, dead)
        other = fresh.pop(_place(point), None)
        if other is not None:
            kept = _joined_point(kept, other)
        if kept.timings:
            points.append(kept)
    return msgspec.structs.replace(
        new, points=(*points, *fresh.values()), kernels={**old.kernels, **new.kernels}
    )


def _joined_point(old: Point, new: Point) -> Point:
    """Backends that only the old point has stay; times of two runs stand side by side then."""
    again = {timing.backend for timing in new.timings} | {one.backend for one in new.rejected}
    kept = tuple(timing for timing in old.timings if timing.backend not in again)
    out = tuple(one for one in old.rejected if one.backend not in again)
    return msgspec.structs.replace(
        new, timings=(*kept, *new.timings), rejected=(*out, *new.rejected)
    )


def _without(point: Point, dead: set[str]) -> Point:
    timings = tuple(timing for timing in point.timings if timing.backend not in dead)
    return msgspec.structs.replace(point, timings=timings)


def _place(point: Point) -> tuple[str, int, int, int]:
    return point.phase, point.batch, point.context, point.query


def _check_key(old: Profile, key: object, path: str) -> None:
    if old.key != key:
        raise InputError(
            f"{path}: it holds times of {old.key}, and this is {key}: name another --output"
        )


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    import fcntl

    name = f"{path}.lock"
    try:
        lock = os.open(name, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise InputError(f"{name} cannot be written: {reason(error)}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
