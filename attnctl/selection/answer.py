"""Runs a whole selection: models on machines, each answer one SelectReport."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from attnctl.caches.budget import plan_cache, with_blocks
from attnctl.caches.costs import cost
from attnctl.layer import Options, layer_of
from attnctl.machine import Machine
from attnctl.machines.assumed import Assumption, assume
from attnctl.model.spec import ModelSpec
from attnctl.registry import Registry
from attnctl.select import select_model, subject_of
from attnctl.selection.briefs import brief_machine
from attnctl.selection.devices import check_device
from attnctl.selection.latent_forms import latent_forms
from attnctl.selection.memo import Memo
from attnctl.selection.options import scoped, unheard
from attnctl.selection.report import SelectReport, report
from attnctl.selection.whatif import Flip, flips

if TYPE_CHECKING:
    from attnctl.decision import Decision
    from attnctl.engines.values import EngineReport
    from attnctl.profile.shelf import Shelf
    from attnctl.profile.values import Profile
    from attnctl.selection.sweep import Ask
    from attnctl.selection.timed import OneBlock


NOTHING_SET: Mapping[str, str] = MappingProxyType({})


def answer(
    spec: ModelSpec,
    assumption: Assumption,
    registry: Registry,
    options: Options,
    *,
    what_if: bool = False,
    device: int = 0,
    profiles: Shelf | None = None,
    mapped: bool = False,
    sweep: Ask | None = None,
    engine: str | None = None,
    environment: Mapping[str, str] = NOTHING_SET,
    memo: Memo | None = None,
) -> SelectReport:
    """The answer for one model on one machine; InputError where it has no such device.

    profiles: timings that may reorder what is eligible. mapped, sweep: add what they say at every
    timed point, and along an axis.
    engine: the version of the engine's table whose answer is wanted beside the registry's.
    environment: the variables of the engine's process.
    """
    machine = assumption.machine
    check_device(machine, device)
    asked, options = options, scoped(options, spec, registry)
    memo = memo or Memo()
    profiled = None
    if profiles is not None or mapped or sweep is not None:
        # a run without a profile does not pay for the modules
        from attnctl.selection.profiled import Profiled

        profiled = Profiled(
            profiles,
            spec,
            machine,
            registry,
            options,
            device=device,
            memo=memo,
            whole=what_if or sweep is not None,
        )
    timed = profiled.profile if profiled else None
    own = options
    decisions, options, one_block = _decided(
        spec, machine, registry, options, device=device, profile=timed, memo=memo
    )
    if profiled and options is not own:
        profiled.take(options)
    # an engine is asked under one size where that is what the timings gave
    engines = options if one_block is None or one_block.is_timed else own
    changes = _flips(spec, machine, registry, options, device, timed) if what_if else None
    costs = [
        cost(decision, options, spec.max_position, spec.max_encoder_position)
        for decision in decisions
    ]
    cache = plan_cache(
        decisions,
        costs,
        options,
        registry,
        units=lambda decision: _units(decision, spec, machine, registry, options, device),
        memory=_memory(machine, options, device),
        max_position=spec.max_position,
    )
    return report(
        spec,
        assumption,
        options,
        decisions,
        costs=with_blocks(costs, cache),
        latent=[latent_forms(decision, registry) for decision in decisions],
        cache=cache,
        one_block=one_block if one_block and one_block.differs else None,
        what_if=changes,
        profiles=profiled.told if profiled else (),
        timed=profiled.groups(decisions, mapped, sweep) if profiled else None,
        engine=_engine(engine, spec, machine, engines, decisions, environment),
        device=device,
        unmet=(*unheard(asked, options, spec), *_no_block(options, one_block)),
    )


def answers(
    specs: Iterable[ModelSpec],
    machines: Iterable[Machine],
    registry: Registry,
    options: Options,
    *,
    assume_installed: str | None = None,
    what_if: bool = False,
    device: int = 0,
    profiles: Shelf | None = None,
    mapped: bool = False,
    sweep: Ask | None = None,
    engine: str | None = None,
    environment: Mapping[str, str] = NOTHING_SET,
) -> Iterator[SelectReport]:
    """Every model on every machine, machine by machine; no rule is asked twice about one thing."""
    memo = Memo()
    models = tuple(specs)
    for machine in machines:
        assumption = assume(machine, assume_installed, registry)
        for spec in models:
            yield answer(
                spec,
                assumption,
                registry,
                options,
                what_if=what_if,
                device=device,
                profiles=profiles,
                mapped=mapped,
                sweep=sweep,
                engine=engine,
                environment=environment,
                memo=memo,
            )


def _decided(
    spec: ModelSpec,
    machine: Machine,
    registry: Registry,
    options: Options,
    *,
    device: int,
    profile: Profile | None,
    memo: Memo,
) -> tuple[tuple[Decision, ...], Options, OneBlock | None]:
    """The decisions, the options that they hold under, and what one block size for all costs."""
    decisions = select_model(
        spec, machine, registry, options, memo=memo, device=device, profile=profile
    )
    sizes = {decision.pick.block_size for decision in decisions if decision.pick} - {None}
    if not options.one_block_size and len(sizes) <= 1:
        return decisions, options, None
    from attnctl.selection.one_block import settled

    return settled(
        decisions, spec, machine, registry, options, device=device, profile=profile, memo=memo
    )


def _flips(
    spec: ModelSpec,
    machine: Machine,
    registry: Registry,
    options: Options,
    device: int,
    profile: Profile | None,
) -> list[tuple[Flip, ...]]:
    """What would change each group's pick; nothing does where a group has no attention."""
    return [
        flips(spec, group, machine, registry, options, device=device, profile=profile)
        if group.kind != "none"
        else ()
        for group in spec.groups
    ]


def _no_block(options: Options, found: OneBlock | None) -> tuple[str, ...]:
    """A sentence where one size was asked for and none serves all groups."""
    if found is None or found.best is not None or not options.one_block_size:
        return ()
    sizes = " and ".join(str(one.tokens) for one in found.sizes)
    return (f"--block-size same: no backend serves every group of layers with blocks of {sizes}",)


def _memory(machine: Machine, options: Options, device: int) -> tuple[int | None, str]:
    """The bytes that the cache may take, and who says so."""
    if options.cache_memory is not None:
        return options.cache_memory, "--cache-memory"
    return brief_machine(
        machine, device
    ).device.memory_bytes, "the whole device: the weights are not taken off"


def _engine(
    version: str | None,
    spec: ModelSpec,
    machine: Machine,
    options: Options,
    decisions: Sequence[Decision],
    environment: Mapping[str, str],
) -> EngineReport | None:
    if version is None:
        return None
    # the rules of an engine are loaded when somebody asks for them
    from attnctl.engines.report import engine_report

    return engine_report(version, spec, machine, options, decisions, environment)


def _units(
    decision: Decision,
    spec: ModelSpec,
    machine: Machine,
    registry: Registry,
    options: Options,
    device: int,
) -> tuple[int, ...]:
    """Sizes of which the pick's cache blocks are multiples on this device."""
    backend = registry.get(decision.pick.name) if decision.pick else None
    if backend is None:
        return ()
    subject = subject_of(machine, layer_of(spec, decision.group, options), device)
    return backend.here(subject).block_units(subject.platform)
