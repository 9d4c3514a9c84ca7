"""What `attnctl select` answers for one model on one machine, as one document.

The table, the JSON and the exit code are read from this value, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from attnctl.caches.budget import CachePlan
from attnctl.caches.costs import Cost
from attnctl.decision import Decision, Pick
from attnctl.engines.values import EngineReport
from attnctl.exits import Exit
from attnctl.findings import Finding
from attnctl.layer import Options
from attnctl.machines.assumed import Assumption
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.selection.briefs import (
    MachineBrief,
    ModelBrief,
    ProfileBrief,
    brief_machine,
    brief_model,
)
from attnctl.selection.latent_forms import LatentForms
from attnctl.selection.timed import Mapped, OneBlock, Span
from attnctl.selection.whatif import Flip

SCHEMA = "attnctl.select/1"
SWEEP_SCHEMA = "attnctl.select-sweep/1"

# a candidate that fails one of these serves other layers or other machines
ELSEWHERE = frozenset({"operation", "platform"})


class CandidateReport(msgspec.Struct, frozen=True, kw_only=True):
    """One backend's answer: reasons are the findings that are not met, findings are all of them."""

    name: str
    ok: bool
    kernel: str
    place: int | None
    reasons: tuple[Finding, ...]
    findings: tuple[Finding, ...]

    @property
    def elsewhere(self) -> bool:
        """True where it computes another operation or runs on another platform."""
        return any(finding.code in ELSEWHERE for finding in self.reasons)


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one group of layers; `layer` is the group as the configuration states it.

    pick / would_pick: names; winner: the pick with its evidence and what it beat. cost: what the
    pick keeps in cache. latent: how the pick computes latent attention. what_if: None where it was
    not asked for. timed_by: the profile whose timings of this shape were used. map: its pick at
    every timed point; sweep: where the choice changes along an axis; None where they were not asked
    for.
    """

    kind: str
    layers: tuple[int, ...]
    layer: LayerGroup
    op: str | None
    features: tuple[str, ...]
    dtype: str
    kv_cache_dtype: str
    answered: bool
    pick: str | None
    winner: Pick | None
    requested: str | None
    would_pick: str | None
    candidates: tuple[CandidateReport, ...]
    notes: tuple[str, ...]
    cost: Cost | None = None
    latent: LatentForms | None = None
    what_if: tuple[Flip, ...] | None = None
    timed_by: str | None = None
    map: tuple[Mapped, ...] | None = None
    sweep: tuple[Span, ...] | None = None


class SelectReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer for one model on one machine.

    unmet: demands that no layer of the model carries, one sentence each. cache: what all groups
    keep together; None where a group's share is not known. one_block: of all groups, where their
    own differ. profile: the first of `profiles`, that decided, were named, or come nearest.
    """

    schema: str = SCHEMA
    machine: MachineBrief
    model: ModelBrief
    options: Options
    assumed: tuple[str, ...]
    assumed_because: str
    profile: ProfileBrief | None = None
    profiles: tuple[ProfileBrief, ...] = ()
    engine: EngineReport | None = None
    unmet: tuple[str, ...] = ()
    groups: tuple[GroupReport, ...]
    cache: CachePlan | None = None
    one_block: OneBlock | None = None
    exit_code: int


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """What the profiles say of one group: the fields timed_by, map and sweep of its report."""

    by: str | None = None
    map: tuple[Mapped, ...] | None = None
    sweep: tuple[Span, ...] | None = None


UNTIMED = Timed()


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """Models by machines: one report for each pair, machine by machine.

    models: how many reports belong to each machine. left_out: sentences that name
    machines that could not be asked; they make the answer no.
    """

    schema: str = SWEEP_SCHEMA
    models: int
    reports: tuple[SelectReport, ...]
    left_out: tuple[str, ...] = ()
    exit_code: int


def report(
    spec: ModelSpec,
    assumption: Assumption,
    options: Options,
    decisions: Sequence[Decision],
    *,
    costs: Sequence[Cost] | None = None,
    latent: Sequence[LatentForms | None] | None = None,
    cache: CachePlan | None = None,
    one_block: OneBlock | None = None,
    what_if: Sequence[tuple[Flip, ...]] | None = None,
    profiles: tuple[ProfileBrief, ...] = (),
    timed: Sequence[Timed] | None = None,
    engine: EngineReport | None = None,
    device: int = 0,
    unmet: tuple[str, ...] = (),
) -> SelectReport:
    """The whole answer; costs, latent, what_if and timed hold one entry per decision, or are None.

    unmet: demands that no layer carries; they make the answer no unless a fallback is allowed.
    """
    unasked: Sequence[None] = [None] * len(decisions)
    groups = tuple(
        _group(decision, cost, forms, flips, of_profile or UNTIMED)
        for decision, cost, forms, flips, of_profile in zip(
            decisions,
            costs or unasked,
            latent or unasked,
            what_if or unasked,
            timed or unasked,
            strict=True,
        )
    )
    return SelectReport(
        machine=brief_machine(assumption.machine, device),
        model=brief_model(spec),
        options=options,
        assumed=assumption.packages,
        assumed_because=assumption.because,
        profile=profiles[0] if profiles else None,
        profiles=profiles,
        engine=engine,
        unmet=unmet,
        groups=groups,
        cache=cache,
        one_block=one_block,
        exit_code=Exit.NO if unmet and not options.allow_fallback else _exit_code(groups, engine),
    )


def _exit_code(groups: Sequence[GroupReport], engine: EngineReport | None) -> Exit:
    """Asked what an engine would do, the answer is the engine's."""
    if engine is not None:
        return Exit.OK if engine.answered else Exit.NO
    return Exit.OK if all(group.answered for group in groups) else Exit.NO


def sweep(
    reports: Iterable[SelectReport], models: int = 1, left_out: tuple[str, ...] = ()
) -> Sweep:
    """Several reports as one document; the answer is no as soon as one of them is.

    models: how many reports, one after the other, belong to each machine. left_out:
    sentences that name machines that could not be asked.
    """
    kept = tuple(reports)
    worst = max((one.exit_code for one in kept), default=Exit.OK)
    return Sweep(
        models=models,
        reports=kept,
        left_out=left_out,
        exit_code=max(worst, Exit.NO) if left_out else worst,
    )


def _group(
    decision: Decision,
    cost: Cost | None,
    forms: LatentForms | None,
    flips: tuple[Flip, ...] | None,
    timed: Timed,
) -> GroupReport:
    return GroupReport(
        kind=decision.group.kind,
        layers=decision.group.layers,
        layer=decision.group,
        op=decision.op,
        features=decision.features,
        dtype=decision.dtype,
        kv_cache_dtype=decision.kv_cache_dtype,
        answered=decision.answered,
        pick=decision.pick.name if decision.pick else None,
        winner=decision.pick,
        requested=decision.requested,
        would_pick=decision.would_pick.name if decision.would_pick else None,
        candidates=tuple(
            CandidateReport(
                name=candidate.name,
                ok=candidate.ok,
                kernel=candidate.kernel,
                place=candidate.place,
                reasons=candidate.reasons,
                findings=candidate.findings,
            )
            for candidate in decision.candidates
        ),
        notes=decision.notes,
        cost=cost,
        latent=forms,
        what_if=flips,
        timed_by=timed.by,
        map=timed.map,
        sweep=timed.sweep,
    )
