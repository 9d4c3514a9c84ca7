"""Decides which backend serves a group of layers on a machine, and keeps every reason.

`select` is one pure function over values: table, JSON, profile and tests render the Decision that
it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnctl.arguments import refuse_no_index, refuse_other
from attnctl.decision import NOT_TIMED, Beaten, Candidate, Decision, Evidence, Pick
from attnctl.exits import InputError
from attnctl.layer import Layer, Options
from attnctl.machine import Gpu, Machine, Platform
from attnctl.memo import Memo
from attnctl.model.spec import ModelSpec
from attnctl.registry import Backend, Rank, Registry
from attnctl.requirements.rule import Subject

if TYPE_CHECKING:
    from attnctl.profile.document import Profile
    from attnctl.profile.order import Order

AUTO = Options()

# past every declared place: a backend that stands in no order of this platform
UNRANKED = 10_000

Scored = tuple[Backend, Candidate, Rank | None]


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
    scored = _score(registry, subject, memo or Memo())
    eligible = [entry for entry in scored if entry[1].ok]
    order = _measured(profile, layer, eligible)
    if order is not None:
        eligible.sort(key=lambda entry: order.names.index(entry[1].name))
        scored = [*eligible, *scored[len(eligible) :]]
    best = _pick(eligible, subject, order) if eligible else None
    requested = options.requested(layer.group.kind)
    if requested is not None:
        return _decide_request(requested, layer, scored, best, subject, options)
    notes = (NOT_TIMED,) if order is None and _is_untimed(profile, layer) else ()
    return _decision(layer, best, tuple(candidate for _, candidate, _ in scored), notes=notes)


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
    eligible.sort(key=_place)
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
    platform: Platform = machine.platform if gpus else "cpu"
    return Subject(machine, platform, gpu, layer)


def _score(registry: Registry, subject: Subject, memo: Memo) -> list[Scored]:
    """Every backend with its findings: eligible ones first, then by place, then by name."""
    scored = []
    for backend in registry.backends:
        findings, ok = memo.findings(backend, subject)
        rank = backend.rank(subject)
        candidate = Candidate(
            name=backend.name,
            ok=ok,
            kernel=backend.kernel_for(subject.layer),
            place=rank.place if rank else None,
            findings=findings,
        )
        scored.append((backend, candidate, rank))
    scored.sort(key=_order)
    return scored


def _order(entry: Scored) -> tuple[bool, int, str]:
    return (not entry[1].ok, *_place(entry[1]))


def _place(candidate: Candidate) -> tuple[int, str]:
    return UNRANKED if candidate.place is None else candidate.place, candidate.name


def _pick(eligible: list[Scored], subject: Subject, order: Order | None) -> Pick:
    backend, _, rank = eligible[0]
    # a backend that was not timed and stands first owes nothing to the timings of others
    used = order if order is not None and order.fastest == backend.name else None
    beat = tuple(_beaten(entry, rank, used) for entry in eligible[1:])
    if not beat:
        evidence: Evidence = "only"
        why = "the only backend that meets every requirement"
    else:
        # what was measured outweighs the default, whoever stands next
        first = next((one for one in beat if one.evidence == "measured"), beat[0])
        evidence, why = first.evidence, f"before {first.name}: {first.because}"
        if evidence == "measured":
            why = f"{backend.name} over {first.name}: {first.because}"
    return _as_pick(backend, evidence, why, beat, subject)


def _beaten(entry: Scored, winner: Rank | None, order: Order | None) -> Beaten:
    _, candidate, rank = entry
    if order is not None and candidate.name in order.because:
        return Beaten(candidate.name, order.because[candidate.name], "measured")
    if order is not None and candidate.name in order.passed:
        because = "not timed for this shape; a timed one stood before it"
        return Beaten(candidate.name, because, "default")
    if winner is None:
        return Beaten(candidate.name, "by name: neither stands in this platform's order", "default")
    if rank is None:
        return Beaten(candidate.name, "it stands in no order of this platform", "default")
    evidence: Evidence = "rule" if winner.when is not None else "default"
    return Beaten(candidate.name, winner.why, evidence)


def _as_pick(
    backend: Backend, evidence: Evidence, why: str, beat: tuple[Beaten, ...], subject: Subject
) -> Pick:
    planned = backend.kernel_for(subject.layer) == "planned"
    return Pick(
        name=backend.name,
        evidence=evidence,
        why=why,
        beat=beat,
        is_ssm=backend.is_ssm,
        runnable=not planned,
        block_size=block_of(backend, subject.layer, subject.platform),
        note=_planned_note(backend, subject.layer) if planned else "",
    )


def _planned_note(backend: Backend, layer: Layer) -> str:
    which = f" for a cache in {layer.kv_cache_dtype}" if backend.kernel != "planned" else ""
    return f"not runnable yet: its kernel{which} is planned"


DEFAULT_BLOCK = 16


def block_of(backend: Backend, layer: Layer, platform: str = "") -> int | None:
    """Tokens per cache page: the user's size, the backend's preference, or the field's 16.

    Where 16 is not one of the backend's sizes, its smallest (vLLM 0.33's rule).
    """
    if not layer.group.needs_kv_cache or backend.is_ssm:
        return None
    if layer.block_size is not None:
        return layer.block_size
    if backend.prefers_block is not None:
        return backend.prefers_block
    units = backend.block_units(platform)
    if not units or any(DEFAULT_BLOCK % unit == 0 for unit in units):
        return DEFAULT_BLOCK
    return min(units)


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
            pick = _as_pick(backend, "requested", "requested by --backend", (), subject)
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
