"""Decides which backend serves a group of layers on a machine, and keeps every reason.

`select` is one pure function over values: table, JSON, profile and tests render the Decision that
it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from attnctl.arguments import refuse_no_index, refuse_other
from attnctl.decision import NOT_TIMED, Candidate, Decision, Pick
from attnctl.exits import InputError
from attnctl.layer import Layer, Options
from attnctl.machine import Gpu, Machine, Platform
from attnctl.model.spec import ModelSpec
from attnctl.registry import Registry
from attnctl.requirements.rule import Subject
from attnctl.selection.memo import Memo
from attnctl.selection.picking import Scored, as_pick, best_of, place_of, score

if TYPE_CHECKING:
    from attnctl.profile.order import Order
    from attnctl.profile.values import Profile

AUTO = Options()


def select_model(
    spec: ModelSpec,
    machine: Machine,
    registry: Registry,
    options: Options = AUTO,
    *,
    memo: Memo | None = None,
    device: int = 0,
    profile: Profile | None = None,
) -> tuple[Decision, ...]:
    """One decision per group of layers of a model, in the model's order.

    Raises InputError where the machine has no such device, or an argument is of another type.
    """
    refuse_other("spec", spec, ModelSpec, "what attnctl.read_model returns")
    _check(machine, registry, options)
    memo = memo or Memo()
    layers = (memo.layer(spec, group, options) for group in spec.groups)
    return tuple(
        select(layer, machine, registry, options, memo=memo, device=device, profile=profile)
        for layer in layers
    )


def select(
    layer: Layer,
    machine: Machine,
    registry: Registry,
    options: Options = AUTO,
    *,
    memo: Memo | None = None,
    device: int = 0,
    profile: Profile | None = None,
) -> Decision:
    """The decision for one layer on one device (its logical index) of a machine.

    Raises InputError where the machine has no such device.
    profile: one that fits the device (attnctl.profile.match); it may reorder what is eligible.
    """
    refuse_other("layer", layer, Layer, "what attnctl.layer.layer_of returns")
    _check(machine, registry, options)
    subject = subject_of(machine, layer, device)
    if layer.group.kind == "none":
        return _decision(layer, None, ())
    profile, other_blocks = _on_users_block(profile, layer, registry, subject.platform)
    scored = score(registry, subject, memo or Memo())
    eligible = [entry for entry in scored if entry[1].ok]
    order = _measured(profile, layer, eligible)
    if order is not None:
        eligible.sort(key=lambda entry: order.names.index(entry[1].name))
        scored = [*eligible, *scored[len(eligible) :]]
    best = best_of(eligible, subject, order) if eligible else None
    requested = options.requested(layer.group.kind)
    if requested is not None:
        decision = _decide_request(requested, layer, scored, best, subject, options)
    else:
        untimed = other_blocks or (NOT_TIMED if _is_untimed(profile, layer) else "")
        notes = (untimed,) if order is None and untimed else ()
        candidates = tuple(candidate for _, candidate, _ in scored)
        decision = _decision(layer, best, candidates, notes=notes)
    return _on_profiles_block(decision, layer, profile, registry, subject)


def _check(machine: Machine, registry: Registry, options: Options) -> None:
    wanted = f"a Machine, as attnctl.machines.load({str(machine)!r})"
    if not isinstance(machine, str):
        wanted = "a Machine, as attnctl.probe() returns"
    refuse_other("machine", machine, Machine, wanted)
    refuse_other("registry", registry, Registry, "what attnctl.load_registry() returns")
    refuse_other("options", options, Options, "attnctl.Options(...)")


def _measured(profile: Profile | None, layer: Layer, eligible: list[Scored]) -> Order | None:
    if profile is None:
        return None
    # a run without a profile does not pay for the module
    from attnctl.profile.order import measured_order

    return measured_order(profile, layer, [candidate.name for _, candidate, _ in eligible])


def _on_users_block(
    profile: Profile | None, layer: Layer, registry: Registry, platform: str
) -> tuple[Profile | None, str]:
    if profile is None or layer.block_size is None:
        return profile, ""
    from attnctl.profile.blocks import for_users_block

    return for_users_block(profile, layer, registry, platform)


def _on_profiles_block(
    decision: Decision, layer: Layer, profile: Profile | None, registry: Registry, subject: Subject
) -> Decision:
    """The decision with the cache block that the profile asks for, as attnctl.plan lays it out."""
    pick = decision.pick
    if profile is None or pick is None or pick.block_size is None or layer.block_size is not None:
        return decision
    from attnctl.profile.order import cache_block

    asked, backend = cache_block(profile, layer, eligible_names(decision)), registry.get(pick.name)
    if asked is None or backend is None:
        return decision
    if not backend.here(subject).takes_block(asked, subject.platform):
        return decision
    sized = msgspec.structs.replace(pick, block_size=asked)
    return msgspec.structs.replace(decision, pick=sized)


def _is_untimed(profile: Profile | None, layer: Layer) -> bool:
    if profile is None:
        return False
    from attnctl.profile.order import is_timed

    return not is_timed(profile, layer)


def eligible_names(decision: Decision) -> tuple[str, ...]:
    """The backends that a profile may choose from, in the default order; a demanded one alone."""
    if decision.requested is not None and decision.pick is not None:
        return (decision.pick.name,)
    eligible = [candidate for candidate in decision.candidates if candidate.ok]
    eligible.sort(key=place_of)
    return tuple(candidate.name for candidate in eligible)


def subject_of(machine: Machine, layer: Layer, device: int = 0) -> Subject:
    """What the rules look at; InputError where the machine has no such device."""
    refuse_no_index("device", device)
    gpus = machine.gpus
    count = len(gpus) or 1  # a machine without a GPU is its processor, device 0
    if not 0 <= device < count:
        have = "only device 0" if count == 1 else f"devices 0 to {count - 1}"
        raise InputError(f"device {device}: {machine.name} has {have}")
    gpu: Gpu | None = gpus[device] if gpus else None
    return Subject(machine, platform_of(machine), gpu, layer)


def platform_of(machine: Machine) -> Platform:
    """The platform whose backends serve a machine: a processor where there is no GPU."""
    return machine.platform if machine.gpus else "cpu"


def _decide_request(
    requested: str,
    layer: Layer,
    scored: list[Scored],
    best: Pick | None,
    subject: Subject,
    options: Options,
) -> Decision:
    candidates = tuple(candidate for _, candidate, _ in scored)
    for backend, candidate, _ in scored:
        if candidate.name == requested and candidate.ok:
            pick = as_pick(backend, "requested", "requested by --backend", (), subject)
            return _decision(layer, pick, candidates, requested)
    if options.allow_fallback and best is not None:
        note = f"{requested} cannot serve these layers; --allow-fallback took {best.name}"
        return _decision(layer, best, candidates, requested, notes=(note,))
    return _decision(layer, None, candidates, requested, would_pick=best)


def _decision(
    layer: Layer,
    pick: Pick | None,
    candidates: tuple[Candidate, ...],
    requested: str | None = None,
    would_pick: Pick | None = None,
    notes: tuple[str, ...] = (),
) -> Decision:
    return Decision(
        group=layer.group,
        op=layer.op,
        features=layer.features,
        dtype=layer.dtype,
        kv_cache_dtype=layer.kv_cache_dtype,
        pick=pick,
        requested=requested,
        would_pick=would_pick,
        candidates=candidates,
        notes=notes,
    )
