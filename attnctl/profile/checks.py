"""Whether a profile holds: its entries read, agree with their timings, and name living kernels."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from attnctl.exits import Exit
from attnctl.findings import Finding
from attnctl.machine import Gpu, Machine
from attnctl.profile.canonical import canonical
from attnctl.profile.hashes import KernelHashes, hashes_of
from attnctl.profile.live import live
from attnctl.profile.match import Status, match
from attnctl.profile.values import Entry, Profile
from attnctl.registry import Registry

SCHEMA = "attnctl.profile-check/1"
GAIN_TOLERANCE = 0.002
"""Share by which a stated gain may differ: it is written with four decimals."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one profile (problems), and what a reader should know (notes).

    status, findings: how it fits the device that was asked about. used, skipped: points that count
    here and points that do not.
    """

    schema: str = SCHEMA
    path: str
    name: str
    status: Status
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    used: int
    skipped: int

    @property
    def exit_code(self) -> Exit:
        return Exit.NO if self.problems else Exit.OK


def check(
    path: str,
    profile: Profile,
    registry: Registry,
    machine: Machine,
    gpu: Gpu | None,
    hashes: KernelHashes | None = None,
) -> Check:
    """The profile against itself, against the kernels that are here, and against one device."""
    found = match(profile, machine, gpu)
    alive, dead = live(profile, hashes_of(profile, registry, hashes))
    problems = [*profile.bad_entries, *map(str, dead), *contradictions(profile)]
    every, living = _points(profile), _points(alive)
    used = living if found.usable else 0
    return Check(
        path=path,
        name=profile.name,
        status=found.status,
        findings=found.findings,
        problems=tuple(problems),
        notes=tuple(_notes(profile, registry)),
        used=used,
        skipped=every - used,
    )


def contradictions(profile: Profile) -> Iterator[str]:
    """What the document states and its timings do not give: a pick, a gain."""
    again = {entry.shape.full: entry for entry in canonical(profile).entries}
    for entry in profile.entries:
        yield from _contradictions(entry, again[entry.shape.full])


def _contradictions(entry: Entry, again: Entry) -> Iterator[str]:
    picks = {point.place: point.pick for point in again.points}
    for point in entry.points:
        right = picks.get(point.place, "")
        if point.pick and point.pick != right:
            yield (
                f"{entry.shape}: at {point} the pick is {point.pick}, and the timings give "
                f"{right or 'none'}"
            )
    if entry.gain is None or again.gain is None:
        return
    if abs(entry.gain / again.gain - 1) > GAIN_TOLERANCE:
        yield f"{entry.shape}: the gain is {entry.gain}, and the timings give {again.gain}"


def _notes(profile: Profile, registry: Registry) -> Iterator[str]:
    named = {t.backend for e in profile.entries for p in e.points for t in p.timings}
    for name in sorted(named):
        if registry.get(name) is None:
            yield f"{name}: no backend of that name is here; its timings are passed over"
    if not profile.entries:
        yield "it holds no timings"


def _points(profile: Profile) -> int:
    return sum(len(entry.points) for entry in profile.entries)
