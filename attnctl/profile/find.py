"""What a command means by a profile and by a device: files, names, this machine or another."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from attnctl.exits import InputError
from attnctl.machine import Gpu, Machine
from attnctl.nearest import did_you_mean
from attnctl.profile.document import read_profile
from attnctl.profile.places import bundled_folder, json_files, user_files
from attnctl.profile.values import Profile
from attnctl.registry import Registry


class Found(NamedTuple):
    """A profile and the file that holds it."""

    path: str
    profile: Profile


class Target(NamedTuple):
    """One device of a machine; gpu None: its processor."""

    machine: Machine
    gpu: Gpu | None
    device: int


def open_profile(name: str, environ: Mapping[str, str]) -> Found:
    """The profile in the file of that path, or of that name among one's own and the bundled ones.

    Raises InputError where there is none, or it does not read.
    """
    known = {path.stem: path for path in reversed(known_files(environ))}
    there = os.path.exists(name)  # noqa: PTH110  (pathlib raises for a name that is too long)
    if name in known and not there:
        return Found(str(known[name]), read_profile(known[name]))
    if not there and "/" not in name and not name.endswith(".json"):
        hint = did_you_mean(name, known) or " See: attnctl profile list"
        raise InputError(f"{name}: no profile or file of that name.{hint}")
    return Found(name, read_profile(name))


def open_profiles(names: Iterable[str], environ: Mapping[str, str]) -> list[Found]:
    """Each of these, in order."""
    return [open_profile(name, environ) for name in names]


def open_found(paths: Iterable[Path]) -> tuple[list[Found], list[str]]:
    """The profiles in files that nobody named; one sentence for each that does not read."""
    found, damaged = [], []
    for path in paths:
        try:
            found.append(Found(str(path), read_profile(path)))
        except InputError as error:
            damaged.append(str(error))
    return found, damaged


def known_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The user's own files, then the bundled ones."""
    return (*user_files(environ), *json_files(bundled_folder()))


def target(machine: str | None, device: int, registry: Registry) -> Target:
    """This machine's device, or that of a bundled or saved one. InputError: it has no such."""
    from attnctl.machines.assumed import assume

    if machine is None:
        from attnctl.probe import probe

        found = probe()
    else:
        from attnctl.machines import load

        found = load(machine)
    found = assume(found, None, registry).machine
    count = len(found.gpus) or 1
    if not 0 <= device < count:
        raise InputError(f"--device {device}: {found.name} has {count}, counted from 0")
    return Target(found, found.gpus[device] if found.gpus else None, device)


def own_of(where: Target, environ: Mapping[str, str]) -> tuple[list[Found], list[str]]:
    """The user's profiles of a device: those of its versions first, then the latest measured.

    And one sentence for each file that does not read.
    """
    from attnctl.profile.match import match

    found, damaged = [], []
    for path in user_files(environ):
        try:
            profile = read_profile(path)
        except InputError as error:
            damaged.append(str(error))
            continue
        fit = match(profile, where.machine, where.gpu)
        if fit.usable:
            found.append((fit.status == "stale", profile.measured, Found(str(path), profile)))
    found.sort(key=lambda one: one[1], reverse=True)
    found.sort(key=lambda one: one[0])
    return [one for _, _, one in found], damaged
