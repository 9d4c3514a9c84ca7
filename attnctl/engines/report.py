"""What an engine would pick for a whole model, and where the registry would choose otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnctl.decision import Decision
from attnctl.engines.values import Difference, EngineDecision, EngineReport, HybridPlan
from attnctl.engines.vllm import NEWEST, NOTHING_SET, explain, hybrid_plan, table_of
from attnctl.exits import InputError
from attnctl.layer import Options
from attnctl.machine import Machine
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.nearest import did_you_mean

ENGINES = ("vllm",)
BLOCK_SIZE = "--block-size"


def check_engine(name: str, version: str | None) -> str:
    """The version of the engine's table that counts; InputError where there is none."""
    if name not in ENGINES:
        hint = did_you_mean(name, ENGINES) or f" Known are {', '.join(ENGINES)}."
        raise InputError(f"--engine {name}: no such engine.{hint}")
    return table_of(version or NEWEST).version


def engine_backends(version: str) -> tuple[str, ...]:
    """Every backend that a version of the engine knows, whether or not the registry has it."""
    return tuple(table_of(version).backends)


def engine_report(
    version: str,
    spec: ModelSpec,
    machine: Machine,
    options: Options,
    decisions: Sequence[Decision],
    environment: Mapping[str, str] = NOTHING_SET,
) -> EngineReport:
    """vLLM's answer beside the registry's decisions for the same groups.

    environment: the variables of vLLM's process, as read_environment returns them.
    """
    groups = tuple(
        _explained(machine, group, options, spec, version, environment) for group in spec.groups
    )
    plan = _planned(machine, spec, options, version, environment)
    arguments, notes = _arguments(groups, plan, options)
    if plan.error or any(group.error for group in groups):
        arguments = ()
    return EngineReport(
        engine="vllm",
        version=version,
        groups=groups,
        plan=plan,
        differences=tuple(_differences(groups, decisions)),
        arguments=arguments,
        notes=notes,
        environment=dict(environment),
    )


def _explained(
    machine: Machine,
    group: LayerGroup,
    options: Options,
    spec: ModelSpec,
    version: str,
    environment: Mapping[str, str],
) -> EngineDecision:
    """One group's decision; a fact that is missing is its error, and the other groups stand."""
    try:
        return explain(machine, group, options, spec, version, environment)
    except InputError as error:
        return EngineDecision(version=version, error=f"not known: {error}")


def _planned(
    machine: Machine,
    spec: ModelSpec,
    options: Options,
    version: str,
    environment: Mapping[str, str],
) -> HybridPlan:
    try:
        return hybrid_plan(machine, spec, options, version, environment=environment)
    except InputError as error:
        return HybridPlan(version=version, error=f"not known: {error}")


def _differences(
    groups: Sequence[EngineDecision], decisions: Sequence[Decision]
) -> list[Difference]:
    found = []
    for index, (theirs, ours) in enumerate(zip(groups, decisions, strict=True)):
        pick = ours.pick.name if ours.pick else None
        if ours.needs_backend and theirs.pick != pick and theirs.pick != _known_as(pick):
            found.append(Difference(index, theirs.pick, pick, _because(theirs, ours)))
    return found


def _known_as(name: str | None) -> str | None:
    """The engine's name for a backend whose registry name differs there."""
    return {"ROCM_AITER_FA": "FLASH_ATTN"}.get(name or "", name)


def _because(theirs: EngineDecision, ours: Decision) -> str:
    """Why the two differ, from whichever side rejected the other's pick."""
    pick = ours.pick
    if theirs.pick is None:
        return f"vLLM refuses: {theirs.error}"
    candidate = next((c for c in ours.candidates if c.name == theirs.pick), None)
    if candidate is None:
        return f"{theirs.pick} is vLLM's alone: no backend of that name is declared here"
    if candidate.reasons:
        reasons = "; ".join(f"wants {r.wanted}, found {r.found}" for r in candidate.reasons)
        return f"here {theirs.pick} is not eligible: {reasons}"
    if pick is None:
        return "the registry has no pick"
    rejected = theirs.rejected.get(pick.name)
    if rejected:
        reasons = "; ".join(f"wants {r.wanted}, found {r.found}" for r in rejected)
        return f"vLLM rejects {pick.name}: {reasons}"
    if pick.name not in theirs.priority:
        return f"{pick.name} is no candidate of vLLM's for these layers"
    beaten = next((b for b in pick.beat if b.name == theirs.pick), None)
    return f"here {pick.name} stands first: {beaten.because}" if beaten else pick.why


def _arguments(
    groups: Sequence[EngineDecision], plan: HybridPlan, options: Options
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The flags that say one thing for all groups, and sentences about the others."""
    values: dict[str, dict[str, None]] = {}
    for group in groups:
        for flag, value in group.flags.items():
            values.setdefault(flag, {})[value] = None
    if plan.state_bytes and options.block_size is None:
        # a hybrid's block size comes out of its states; a flag is the granule that it is rounded
        # to, and belongs there where the answer was made with one
        values.pop(BLOCK_SIZE, None)
    notes = []
    for flag, wanted in values.items():
        if len(wanted) > 1 and flag == BLOCK_SIZE and plan.block_size:
            notes.append(
                f"{flag}: one size for all groups, {plan.block_size}; by themselves they would "
                f"have {' and '.join(wanted)}"
            )
            values[flag] = {str(plan.block_size): None}
        elif len(wanted) > 1:
            notes.append(
                f"{flag}: the groups need {' and '.join(wanted)}; one flag cannot say both"
            )
    arguments = (f"{flag} {next(iter(v))}" for flag, v in values.items() if len(v) == 1)
    return tuple(arguments), tuple(notes)
