"""The live timings for one device, as one value: of all profiles that fit it, or of one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from attnctl.arguments import refuse_no_index, refuse_other
from attnctl.exits import InputError
from attnctl.machine import Machine
from attnctl.profile.match import match
from attnctl.profile.shelf import Shelf
from attnctl.profile.values import Profile
from attnctl.registry import Registry
from attnctl.selection.briefs import ProfileBrief

if TYPE_CHECKING:
    from attnctl.profile.live import Dead


def load_profile(
    path: str | os.PathLike[str] | None = None,
    *,
    machine: Machine | None = None,
    device: int = 0,
    environ: Mapping[str, str] | None = None,
) -> Profile | None:
    """The live timings for a device of a machine (this one), from all profiles that fit it.

    path: a file that goes before ATTNCTL_PROFILE, the user's and the bundled profiles; "none" for
    no profile. None where none fits. Raises InputError where a named file does not read, or the
    machine has no such device.
    """
    from attnctl.registry import load

    if machine is None:
        from attnctl.probe import probe

        machine = probe()
    refuse_other("path", path, (str, os.PathLike, type(None)), 'a file, or "none"')
    refuse_other("machine", machine, Machine, "a Machine, as attnctl.probe() returns")
    refuse_no_index("device", device)
    count = max(1, len(machine.gpus))
    if not 0 <= device < count:
        raise InputError(f"device {device}: {machine.name} has {count}, counted from 0")
    return timings_for(path, machine, device, load(), environ)[0]


def timings_for(
    profile: str | os.PathLike[str] | Profile | None,
    machine: Machine,
    device: int,
    registry: Registry,
    environ: Mapping[str, str] | None = None,
) -> tuple[Profile | None, tuple[str, ...]]:
    """The live timings that fit a device, and sentences on what of the profiles is not used.

    profile: as load_profile's path, or one that was read, which then stands alone. device: one that
    the machine has.
    """
    gpu = machine.gpus[device] if machine.gpus else None
    if isinstance(profile, Profile):
        found = match(profile, machine, gpu)
        if not found.usable:
            return None, (f"profile {profile.name} is {found.status} here and is not used",)
        alive, dead = _live(profile, registry)
        return alive, (*map(str, dead), *profile.bad_entries)
    path = None if profile is None else os.fspath(profile)
    fit = Shelf(path, os.environ if environ is None else environ).fit(machine, gpu, registry)
    return fit.profile, tuple(note for one in fit.told for note in _notes(one))


def _notes(brief: ProfileBrief) -> Iterator[str]:
    name = f"profile {brief.name} [{brief.origin}]"
    if brief.status == "damaged":
        yield f"{name} is not used: {brief.error}"
    elif brief.status != "valid":
        unused = "" if brief.status == "stale" else " and is not used"
        why = ", ".join(f"{one.wanted}, here {one.found}" for one in brief.findings if not one.met)
        yield f"{name} is {brief.status} here{unused}: {why}"
    yield from brief.dead
    yield from brief.bad_entries


def _live(profile: Profile, registry: Registry) -> tuple[Profile, tuple[Dead, ...]]:
    from attnctl.profile.hashes import hashes_of
    from attnctl.profile.live import live

    return live(profile, hashes_of(profile, registry))
