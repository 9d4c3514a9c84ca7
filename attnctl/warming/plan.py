"""What of a profile is to be compiled on this machine: every setting that a batch may meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from attnctl.exits import AttnctlError, Exit
from attnctl.findings import Finding
from attnctl.machine import Gpu, Machine
from attnctl.profile.document import key_of
from attnctl.profile.hashes import hashes_of
from attnctl.profile.layers import layer_of_shape
from attnctl.profile.live import live
from attnctl.profile.match import match
from attnctl.profile.pick import Pick, Table
from attnctl.profile.values import Entry, Profile
from attnctl.registry import Registry
from attnctl.requirements.packages import lack_of_torch
from attnctl.select import eligible_names, select
from attnctl.tune.settings import Setting
from attnctl.tune.workload import Load
from attnctl.warming.values import Job

LEAST_CONTEXT = 16
LEAST_QUERY = 16
BEYOND = 4
"""How far beyond the largest point a pick still serves, as attnctl.profile.pick has it."""


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
        made = list(_jobs(entry, machine, device, registry, small=gpu is None))
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
    entry: Entry, machine: Machine, device: int, registry: Registry, small: bool
) -> Iterator[Job]:
    """small: kernels do not depend on a batch's shape, so that one batch a setting is enough."""
    decision = select(layer_of_shape(entry.shape), machine, registry, device=device)
    table = Table(entry, eligible_names(decision))
    groups: dict[tuple[str, str], tuple[Pick, list[Load]]] = {}
    for load in loads_of(entry):
        pick = table.pick(load.phase, load.batch, load.context, load.query)
        if pick.backend:
            setting = str(Setting(knobs=dict(pick.knobs), kernel=pick.kernel))
            groups.setdefault((pick.backend, setting), (pick, []))[1].append(load)
    for (backend, setting), (pick, loads) in groups.items():
        yield Job(
            shape=entry.shape,
            backend=backend,
            setting=setting,
            loads=tuple(loads[:1] if small else loads),
            knobs=dict(pick.knobs),
            kernel=pick.kernel,
        )


def loads_of(entry: Entry) -> tuple[Load, ...]:
    """The points that were timed, and the powers of two as far as these serve on each axis.

    How a kernel is cut follows from the batch's shape, so that batches between two points may run
    variants that neither of them does. A state does not see how long the context is.
    """
    found: dict[str, Load] = {}
    for load in (*_points(entry), *_decode(entry), *_prefill(entry)):
        found.setdefault(str(load), load)
    return tuple(found.values())


def _points(entry: Entry) -> Iterator[Load]:
    for one in entry.points:
        yield Load(phase=one.phase, batch=one.batch, context=one.context, query=one.query)


def _decode(entry: Entry) -> Iterator[Load]:
    steps = [one for one in entry.points if one.phase == "decode"]
    if not steps:
        return
    contexts = _powers(LEAST_CONTEXT, BEYOND * max(one.context for one in steps))
    if entry.shape.state:
        contexts = contexts[-1:]
    for batch in _powers(1, BEYOND * max(one.batch for one in steps)):
        for context in contexts:
            yield Load(phase="decode", batch=batch, context=context)


def _prefill(entry: Entry) -> Iterator[Load]:
    """Prompts by themselves and as the last chunk of the longest context."""
    chunks = [one for one in entry.points if one.phase == "prefill"]
    if not chunks:
        return
    longest = max(one.context for one in chunks)
    for query in _powers(LEAST_QUERY, max(one.query for one in chunks)):
        for context in (query, longest):
            if query <= context:
                yield Load(phase="prefill", batch=1, context=context, query=query)


def _powers(least: int, most: int) -> list[int]:
    """Powers of two from one to the other, both ends among them where they are none."""
    found = [least]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found
