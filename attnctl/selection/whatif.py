"""Which single change would flip a decision: tried, not guessed.

Every change that a user can make alone (an option, a package more or less, other ranks) is applied
to the machine or the options, and the selection is run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from attnctl.layer import BOUNDS, KV_DTYPES, Layer, Options, layer_of
from attnctl.machine import Machine, Package
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.registry import Registry
from attnctl.select import select
from attnctl.selection.memo import Memo

if TYPE_CHECKING:
    from attnctl.profile.values import Profile

TRIAL = "what-if"
DTYPES = ("float16", "bfloat16", "float32")
BLOCK_SIZES = (16, 32, 64, 128)


class Flip(msgspec.Struct, frozen=True):
    """One change and the picks before and after it; None: nothing eligible."""

    change: str
    before: str | None
    after: str | None


def flips(
    spec: ModelSpec,
    group: LayerGroup,
    machine: Machine,
    registry: Registry,
    options: Options,
    *,
    device: int = 0,
    profile: Profile | None = None,
) -> tuple[Flip, ...]:
    """Every single change that gives these layers another backend, or one where there was none.

    device, profile: those of the selection that is asked about.
    """
    memo = Memo()

    def pick(trial_options: Options, trial_machine: Machine) -> str | None:
        layer = layer_of(spec, group, trial_options)
        decision = select(
            layer,
            trial_machine,
            registry,
            trial_options,
            memo=memo,
            device=device,
            profile=profile,
        )
        return decision.pick.name if decision.pick else None

    before = pick(options, machine)
    layer = layer_of(spec, group, options)
    trials = (
        *_option_trials(layer, options, machine),
        *_package_trials(registry, options, machine),
    )
    found = ((change, pick(*trial)) for change, trial in trials)
    return tuple(Flip(change, before, after) for change, after in found if after != before)


Trial = tuple[str, tuple[Options, Machine]]


def _option_trials(layer: Layer, options: Options, machine: Machine) -> Iterator[Trial]:
    for dtype in DTYPES:
        if dtype != layer.dtype:
            yield f"--dtype {dtype}", (_with(options, dtype=dtype), machine)
    if layer.group.needs_kv_cache:
        for kv_dtype in KV_DTYPES:
            if kv_dtype != layer.kv_cache_dtype:
                change = f"--kv-cache-dtype {kv_dtype}"
                yield change, (_with(options, kv_cache_dtype=kv_dtype), machine)
        for size in BLOCK_SIZES:
            if size != options.block_size:
                yield f"--block-size {size}", (_with(options, block_size=size), machine)
    if options.block_size is not None:
        yield "no --block-size", (_with(options, block_size=None), machine)
    if options.backend:
        yield "no --backend", (_with(options, backend=()), machine)
    for ranks in dict.fromkeys((1, options.tp // 2, 2 * options.tp)):
        if ranks != options.tp and 1 <= ranks <= BOUNDS["tp"][1]:
            yield f"--tp {ranks}", (_with(options, tp=ranks), machine)


def _package_trials(registry: Registry, options: Options, machine: Machine) -> Iterator[Trial]:
    for name in registry.packages():
        package = machine.packages.get(name)
        there = package is not None and package.status in ("ok", "assumed")
        usable = there and package is not None and package.usable is not False
        change = f"without {name}" if usable else f"with {name} usable" if there else f"with {name}"
        status = Package(status="absent" if usable else "assumed", source=TRIAL)
        yield change, (options, _with_package(machine, name, status))


def _with(options: Options, **changes: object) -> Options:
    return msgspec.structs.replace(options, **changes)


def _with_package(machine: Machine, name: str, package: Package) -> Machine:
    return msgspec.structs.replace(machine, packages={**machine.packages, name: package})
