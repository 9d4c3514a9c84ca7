"""What of a profile still holds here: timings whose kernel source is the one that was timed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from attnctl.profile.merge import without
from attnctl.profile.values import Entry, Profile, Shape


class Dead(msgspec.Struct, frozen=True):
    """The timings of one backend at one shape, whose kernel source is another one now."""

    shape: Shape
    backend: str
    timed: str
    here: str

    def __str__(self) -> str:
        return (
            f"{self.backend}'s timings of {self.shape} are dead: its kernel source was "
            f"{self.timed} and is {self.here}"
        )


def live(profile: Profile, hashes: Mapping[str, str]) -> tuple[Profile, tuple[Dead, ...]]:
    """The profile less its dead timings, and those.

    hashes: backend -> hash of its kernel source here; of one that is not named nothing is known,
    and its timings stand.
    """
    kept, dead = [], []
    for entry in profile.entries:
        gone = _dead(entry, hashes)
        dead += gone
        entry = _alive(entry, {one.backend for one in gone})
        if entry.points:
            kept.append(entry)
    if not dead:
        return profile, ()
    return msgspec.structs.replace(profile, entries=tuple(kept)), tuple(dead)


def _dead(entry: Entry, hashes: Mapping[str, str]) -> list[Dead]:
    return [
        Dead(entry.shape, name, timed, hashes[name])
        for name, timed in entry.kernels.items()
        if hashes.get(name, timed) != timed
    ]


def _alive(entry: Entry, gone: set[str]) -> Entry:
    if not gone:
        return entry
    points = (without(point, gone) for point in entry.points)
    return msgspec.structs.replace(
        entry,
        points=tuple(point for point in points if point.timings),
        kernels={name: hashed for name, hashed in entry.kernels.items() if name not in gone},
    )
