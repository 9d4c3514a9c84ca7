"""Runs a whole selection: models on machines, each answer one SelectReport."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attnctl.assume import Assumption, assume
from attnctl.costs import cost
from attnctl.exits import InputError
from attnctl.layer import Options
from attnctl.machine import Machine
from attnctl.memo import Memo
from attnctl.model.spec import ModelSpec
from attnctl.options import scoped
from attnctl.registry import Registry
from attnctl.report import SelectReport, report
from attnctl.select import select_model
from attnctl.whatif import flips

if TYPE_CHECKING:
    from attnctl.decision import Decision
    from attnctl.engines.values import EngineReport
    from attnctl.profile.document import Profile
    from attnctl.profile.match import Match


def answer(
    spec: ModelSpec,
    assumption: Assumption,
    registry: Registry,
    options: Options,
    *,
    what_if: bool = False,
    device: int = 0,
    profile: Profile | None = None,
    engine: str | None = None,
    memo: Memo | None = None,
) -> SelectReport:
    """The answer for one model on one machine; InputError where it has no such device.

    engine: the version of the engine's table whose answer is wanted beside the registry's.
    """
    machine = assumption.machine
    _check_device(machine, device)
    options = scoped(options, spec, registry)
    fit = _match(profile, machine, device)
    timed = fit.profile if fit and fit.usable else None
    decisions = select_model(
        spec, machine, registry, options, memo=memo, device=device, profile=timed
    )
    changes = None
    if what_if:
        changes = [
            flips(spec, group, machine, registry, options, device=device, profile=timed)
            if group.kind != "none"
            else ()
            for group in spec.groups
        ]
    costs = [
        cost(decision, options, spec.max_position, spec.max_encoder_position)
        for decision in decisions
    ]
    return report(
        spec,
        assumption,
        options,
        decisions,
        costs=costs,
        what_if=changes,
        profile=fit,
        engine=_engine(engine, spec, machine, options, decisions),
        device=device,
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
    profile: Profile | None = None,
    engine: str | None = None,
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
                profile=profile,
                engine=engine,
                memo=memo,
            )


def _match(profile: Profile | None, machine: Machine, device: int) -> Match | None:
    if profile is None:
        return None
    from attnctl.profile.match import match

    gpus = machine.gpus
    return match(profile, machine, gpus[device] if gpus else None)


def _engine(
    version: str | None,
    spec: ModelSpec,
    machine: Machine,
    options: Options,
    decisions: Sequence[Decision],
) -> EngineReport | None:
    if version is None:
        return None
    # the rules of an engine are loaded when somebody asks for them
    from attnctl.engines.report import engine_report

    return engine_report(version, spec, machine, options, decisions)


def _check_device(machine: Machine, device: int) -> None:
    count = max(1, len(machine.gpus))
    if not 0 <= device < count:
        raise InputError(
            f"--device {device}: {machine.name} has devices 0 to {count - 1}"
            if count > 1
            else f"--device {device}: {machine.name} has only device 0"
        )
