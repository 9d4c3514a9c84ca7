"""The profiles that fit a device, as one: for each layer shape the first in the order of search."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from attnctl.exits import InputError
from attnctl.machine import Gpu, Machine
from attnctl.profile.match import Match, match
from attnctl.profile.sources import NAMED, Source, sources
from attnctl.profile.values import Entry, Profile, Shape
from attnctl.registry import Registry
from attnctl.selection.briefs import ProfileBrief

if TYPE_CHECKING:
    from attnctl.profile.hashes import KernelHashes
    from attnctl.profile.live import Dead


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What the profiles say for one device.

    profile: the live entries of all that fit, one per shape; None where none fits. origins: shape
    -> the place in `considered` of the profile that it comes from. hidden: shape -> those that
    hold it too and come later.
    """

    profile: Profile | None
    considered: tuple[ProfileBrief, ...]
    origins: dict[Shape, int] = {}
    hidden: dict[Shape, tuple[int, ...]] = {}

    @property
    def told(self) -> tuple[ProfileBrief, ...]:
        """Those that a reader of the answer wants to hear of.

        All that were named, that decided something or that are damaged; where none fits, the
        nearest of the same architecture.
        """
        fitting = [one for one in self.considered if one.status in ("valid", "stale")]
        # where none holds a shape that was asked about, the first stands for them
        first = None if any(one.used for one in fitting) else next(iter(fitting), None)
        told = [
            one
            for one in self.considered
            if one.used or one is first or one.origin in NAMED or one.status == "damaged"
        ]
        if self.profile is None and not any(one.status == "foreign" for one in told):
            told += self.nearest
        return tuple(told)

    @property
    def nearest(self) -> tuple[ProfileBrief, ...]:
        """The foreign profile of this architecture that differs in the fewest fields, or none."""
        foreign = [one for one in self.considered if one.status == "foreign"]
        near = [one for one in foreign if not {"vendor", "arch"} & _differing(one)]
        return tuple(sorted(near, key=lambda one: (len(_differing(one)), one.name))[:1])


class _Read(msgspec.Struct):
    """One fitting document, whole, with what of it is dead here."""

    source: Source
    found: Match
    profile: Profile
    dead: tuple[Dead, ...]


class Shelf:
    """Every profile that may be used; a file is read whole only where its header fits a device.

    Raises InputError where a file that was named does not read.
    """

    def __init__(
        self, option: str | None, environ: Mapping[str, str], bundled: Path | None = None
    ) -> None:
        self._sources = sources(option, environ, bundled)
        self._hashes: KernelHashes | None = None
        self._read_of: dict[tuple[Path, frozenset[Shape] | None], Profile] = {}

    @property
    def sources(self) -> tuple[Source, ...]:
        """All of them, in the order of search."""
        return self._sources

    def fit(
        self,
        machine: Machine,
        gpu: Gpu | None,
        registry: Registry,
        shapes: Collection[Shape] | None = None,
    ) -> Fit:
        """What the profiles say for this device. shapes: only these matter; by default all."""
        wanted = None if shapes is None else frozenset(shape.full for shape in shapes)
        fitting, others = [], []
        for source in self._sources:
            if source.header is None:
                others.append(_damaged(source))
                continue
            found = match(source.header.profile, machine, gpu)
            if not found.usable:
                others.append(_considered(source, found))
                continue
            try:
                fitting.append(self._read(source, found, registry, wanted))
            except InputError as error:  # its header reads and the rest does not
                if source.origin in NAMED:
                    raise
                others.append(_damaged(source, str(error)))
        fitting.sort(key=_turn)
        return _layered(fitting, others)

    def _read(
        self, source: Source, found: Match, registry: Registry, wanted: frozenset[Shape] | None
    ) -> _Read:
        # a run in which nothing fits does not pay for the modules
        from attnctl.profile.hashes import KernelHashes, hashes_of
        from attnctl.profile.live import live
        from attnctl.profile.merge import united

        self._hashes = self._hashes or KernelHashes()
        asked = (source.path, wanted)
        if asked not in self._read_of:
            self._read_of[asked] = source.read(wanted)
        whole = self._read_of[asked]
        kept = tuple(e for e in united(whole.entries) if wanted is None or e.shape in wanted)
        profile = msgspec.structs.replace(whole, entries=kept)
        alive, dead = live(profile, hashes_of(profile, registry, self._hashes))
        return _Read(source, found, alive, dead)


def _turn(read: _Read) -> tuple[int, bool, tuple[int, ...]]:
    """The order of search; in one folder valid before stale, then the latest measured."""
    origin = ("option", "environment", "user", "bundled").index(read.source.origin)
    latest = tuple(-ord(character) for character in read.profile.measured)
    return origin, read.found.status == "stale", latest


def _layered(fitting: list[_Read], others: list[ProfileBrief]) -> Fit:
    entries: dict[Shape, Entry] = {}
    origins: dict[Shape, int] = {}
    hidden: dict[Shape, tuple[int, ...]] = {}
    for place, read in enumerate(fitting):
        for entry in _dated(read.profile):
            if not entry.points:
                continue
            if entry.shape in entries:
                hidden[entry.shape] = (*hidden.get(entry.shape, ()), place)
            else:
                entries[entry.shape], origins[entry.shape] = entry, place
    used = set(origins.values())
    considered = [
        _considered(read.source, read.found, read, place in used)
        for place, read in enumerate(fitting)
    ]
    profile = None
    if fitting:
        first = fitting[min(used, default=0)].profile
        profile = msgspec.structs.replace(first, entries=tuple(entries.values()), bad_entries=())
    return Fit(profile=profile, considered=(*considered, *others), origins=origins, hidden=hidden)


def _dated(profile: Profile) -> Iterator[Entry]:
    """Its entries with the day at each point, so that they can stand beside those of another."""
    for entry in profile.entries:
        points = (
            p if p.measured else msgspec.structs.replace(p, measured=profile.measured)
            for p in entry.points
        )
        yield msgspec.structs.replace(entry, points=tuple(points))


def _considered(
    source: Source, found: Match, read: _Read | None = None, used: bool = False
) -> ProfileBrief:
    return ProfileBrief(
        name=found.profile.name,
        origin=source.origin,
        path=str(source.path),
        measured=found.profile.measured,
        status=found.status,
        used=used,
        findings=found.findings,
        bad_entries=read.profile.bad_entries if read else (),
        dead=tuple(map(str, read.dead)) if read else (),
    )


def _differing(brief: ProfileBrief) -> set[str]:
    """The fields of the key that keep a profile from fitting."""
    unmet = (f for f in brief.findings if f.code == "profile_key" and not f.met)
    return {finding.wanted.partition(" ")[0] for finding in unmet}


def _damaged(source: Source, error: str = "") -> ProfileBrief:
    return ProfileBrief(
        name=source.path.stem,
        origin=source.origin,
        path=str(source.path),
        status="damaged",
        error=error or source.error,
    )
