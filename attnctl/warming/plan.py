"""What of a profile is to be compiled on this machine: every setting that a batch may meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from attnctl.exits import AttnctlError, Exit
from attnctl.findings import Finding
from attnctl.layer import Layer
from attnctl.machine import Gpu, Machine
from attnctl.profile.blocks import on_block, own_sizes, timed_sizes
from attnctl.profile.document import key_of
from attnctl.profile.hashes import hashes_of
from attnctl.profile.layers import layer_of_shape
from attnctl.profile.live import live
from attnctl.profile.match import match
from attnctl.profile.pick import Table
from attnctl.profile.ranking import BLOCK_SIZE
from attnctl.profile.values import Entry, Profile
from attnctl.registry import Registry
from attnctl.requirements.packages import lack_of_torch
from attnctl.select import eligible_names, platform_of, select
from attnctl.tune.settings import Knob, Setting
from attnctl.tune.workload import Load
from attnctl.warming.loads import loads_of
from attnctl.warming.values import Job

_Setting = tuple[str, str, tuple[tuple[str, Knob], ...]]
"""A backend, its kernel and its knobs by name."""


class NothingToWarmError(AttnctlError):
    """The profile is of another device, or nothing of it holds here: the answer is no."""

    exit_code = Exit.NO


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """jobs: one a setting of each layer shape. notes: sentences on what is left out or stale.

    profile: what they are of, where the children shall not read its file again.
    """

    jobs: tuple[Job, ...]
    notes: tuple[str, ...] = ()
    profile: Profile | None = None


def wanted(
    path: str, profile: Profile, machine: Machine, device: int, registry: Registry
) -> Wanted:
    """Every setting of the live timings. NothingToWarmError: there is none, with the reason."""
    gpu: Gpu | None = machine.gpus[device] if machine.gpus else None
    found = match(profile, machine, gpu)
    if not found.usable:
        raise NothingToWarmError(
            f"{path}: it was timed on {profile.key}, and this is {key_of(machine, gpu)}: give a "
            "profile of this device (attnctl profile list)"
        )
    alive, dead = live(profile, hashes_of(profile, registry))
    notes = [*map(str, dead), *profile.bad_entries]
    if found.status == "stale":
        notes.append(f"{path} is stale here: {_differences(found.findings)}")
    jobs: list[Job] = []
    for entry in alive.entries:
        made = list(_jobs(entry, alive, machine, device, registry))
        jobs += made
        if not made:
            notes.append(f"{entry.shape}: no backend that was timed is eligible here")
    if not jobs:
        lack = lack_of_torch(machine) if alive.entries else ""
        why = lack or "; ".join(dict.fromkeys(notes)) or "it holds no timings"
        raise NothingToWarmError(f"{path}: nothing of it can be compiled here: {why}")
    return Wanted(jobs=tuple(jobs), notes=tuple(dict.fromkeys(notes)), profile=profile)


def _differences(findings: Sequence[Finding]) -> str:
    return ", ".join(f"{one.wanted}, here {one.found}" for one in findings if not one.met)


def _jobs(
    entry: Entry, profile: Profile, machine: Machine, device: int, registry: Registry
) -> Iterator[Job]:
    """Those of a plan on the profile's own size of blocks, then those on each size that was timed.

    A plan has another size where the user names one, or where all layers are to have the same.
    """
    layer = layer_of_shape(entry.shape)
    usual = _settings(entry, layer, machine, device, registry)
    yield from _made(entry, usual, machine)
    if layer.group.is_ssm or not layer.group.needs_kv_cache:
        return
    own = own_sizes(registry, platform_of(machine))
    taken = select(layer, machine, registry, device=device, profile=profile).pick
    for tokens in timed_sizes(entry, own):
        timed = on_block(entry, tokens, own)
        if timed is None:
            continue
        sized = msgspec.structs.replace(layer, block_size=tokens)
        found = _settings(timed, sized, machine, device, registry)
        if taken is not None and taken.block_size == tokens:
            found = {one: loads for one, loads in found.items() if usual.get(one) != loads}
        yield from _made(entry, found, machine, tokens)


def _settings(
    entry: Entry, layer: Layer, machine: Machine, device: int, registry: Registry
) -> dict[_Setting, tuple[Load, ...]]:
    """What the timings pick for the batches of an entry, and the batches that each serves."""
    decision = select(layer, machine, registry, device=device)
    table = Table(entry, eligible_names(decision))
    found: dict[_Setting, list[Load]] = {}
    for load in loads_of(entry):
        pick = table.pick(load.phase, load.batch, load.context, load.query)
        if pick.backend:
            setting = pick.backend, pick.kernel, tuple(sorted(pick.knobs.items()))
            found.setdefault(setting, []).append(load)
    return {setting: tuple(loads) for setting, loads in found.items()}


def _made(
    entry: Entry,
    settings: Mapping[_Setting, tuple[Load, ...]],
    machine: Machine,
    tokens: int | None = None,
) -> Iterator[Job]:
    """tokens: in a block of the cache, where it is not the profile's own size."""
    # a processor's kernels do not depend on a batch's shape, so that one batch a setting is enough
    most = None if machine.gpus else 1
    for (backend, kernel, knobs), loads in settings.items():
        said = dict(knobs) if tokens is None else {**dict(knobs), BLOCK_SIZE: tokens}
        yield Job(
            shape=entry.shape,
            backend=backend,
            setting=str(Setting(knobs=said, kernel=kernel)),
            loads=loads[:most],
            knobs=dict(knobs),
            kernel=kernel,
            block_size=tokens,
        )
