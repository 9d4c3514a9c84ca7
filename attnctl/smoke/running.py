"""A run of smoke from what the user asked for: its backends, cases and plans, then its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from attnctl.compiling.declared import compiled_backends
from attnctl.exits import InputError
from attnctl.machine import Machine
from attnctl.ops.case import Case
from attnctl.ops.case_size import memory_bytes, refuse_oversized
from attnctl.registry import Backend, Registry
from attnctl.smoke.again import options_of
from attnctl.smoke.place import Place, read_place
from attnctl.smoke.planning import (
    Plan,
    plan,
    refuse_untaken,
    report,
    runnable_backends,
    summary,
    with_imports,
)
from attnctl.smoke.request import Request
from attnctl.smoke.streams import Streams, as_planned, run_plans_here, streams_of
from attnctl.smoke.trials import Ceiling, Ready, SmokeReport, Trial

CASE_S = 60.0
"""Limit of one case where the user names none."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was found to make sense. machine: of one whose kernels run."""

    request: Request
    plans: tuple[Plan, ...]
    baseline: SmokeReport | None = None
    machine: Machine | None = None


def prepare(request: Request) -> Prepared:
    """The plans of a run. InputError: a name, a case or a file that makes no sense."""
    from attnctl.registry import load

    registry = load()
    backends = _backends(request, registry)
    if request.targets is not None:
        return _prepare_compilation(request, backends)
    cases = _of_ops(request, _cases(request))
    if request.cases:
        refuse_untaken(cases, backends)
    machine = _machine()
    if request.cases:
        refuse_oversized(cases, memory_bytes(machine))
    place = None if request.device is None else read_place(request.device, machine)
    plans = [plan(one, machine, cases, place) for one in backends]
    if request.quick and not request.cases:  # a case that was named is wanted
        from attnctl.smoke.quick import quick

        plans = quick(plans)
    if request.perf and not request.cases:
        plans = _with_serving(request, plans, backends, machine, place)
    if request.every and (request.ops or request.cases or request.model is not None):
        # of the others nothing was asked
        plans = [one for one in plans if one.runnable or one.refused] or plans
    earlier = None
    if request.baseline is not None:
        from attnctl.perf.run import read_times

        earlier = read_times(request.baseline)
    return Prepared(request=request, plans=tuple(plans), baseline=earlier, machine=machine)


def _with_serving(
    request: Request,
    plans: Sequence[Plan],
    backends: Sequence[Backend],
    machine: Machine,
    place: Place | None,
) -> list[Plan]:
    from attnctl.perf.run import with_serving

    named = {one.name: one for one in backends}
    return with_serving(
        plans,
        None if request.model is None else _cases(request),
        request.ops,
        lambda name, cases: plan(named[name], machine, cases, place),
    )


def _prepare_compilation(request: Request, backends: Sequence[Backend]) -> Prepared:
    from attnctl.compiling.baseline import read_report
    from attnctl.smoke.compiling import compile_plans

    earlier = None if request.baseline is None else read_report(request.baseline)
    asked = _cases(request) if request.cases or request.model is not None else None
    plans = compile_plans(request, backends, asked, lambda cases: _of_ops(request, cases))
    return Prepared(request=request, plans=tuple(plans), baseline=earlier)


def run(prepared: Prepared) -> SmokeReport:
    """The trials of every plan, shown as they end, and what they come to."""
    options = options_of(prepared.request)
    return msgspec.structs.replace(_run(prepared), options=options)


def _run(prepared: Prepared) -> SmokeReport:
    from attnctl.processes.unwinding import ended_by_signals
    from attnctl.render.smoke_live import LiveTable

    said: list[Ready] = []
    trials: list[list[Trial]] = [[] for _ in prepared.plans]
    with ended_by_signals():
        ceilings = _ceilings(prepared)
        with LiveTable(prepared.plans, shown=not prepared.request.every_knob) as live:
            for place, trial in _trials(prepared, said, ceilings):
                trials[place].append(trial)
                live.note(place, trial)
        results = [
            summary(one, as_planned(one, kept))
            for one, kept in zip(prepared.plans, trials, strict=True)
        ]
        if prepared.request.targets is not None:
            return _compiled(prepared, report(results), said)
        results = with_imports(results)
        if not prepared.request.perf:
            return report(results)
        from attnctl.perf.ceilings import highest
        from attnctl.perf.run import timed_report

        # a processor's are measured again: what others do on it lowers them, and comes and goes
        ceilings = highest(ceilings, _ceilings(prepared, only="cpu"))
        limit_s = prepared.request.timeout_s or CASE_S
        return timed_report(prepared, report(results), ceilings, limit_s)


def _ceilings(prepared: Prepared, only: str | None = None) -> dict[str, Ceiling]:
    """Of the devices whose kernels are timed; none where times were not asked for."""
    if not prepared.request.perf or prepared.machine is None:
        return {}
    from attnctl.perf.ceilings import measure, timed_devices

    devices = timed_devices(prepared.plans)
    return measure([one for one in devices if only in (None, one)], prepared.machine)


def _trials(
    prepared: Prepared, said: list[Ready], ceilings: Mapping[str, Ceiling]
) -> Iterator[tuple[int, Trial]]:
    request = prepared.request
    if request.targets is None:
        machine = prepared.machine
        streams = Streams() if machine is None else streams_of(machine, _children())
        yield from run_plans_here(
            prepared.plans,
            request.timeout_s or CASE_S,
            streams,
            twice=request.twice,
            ceilings=ceilings,
        )
        return
    from attnctl.smoke.compiling import compiled_trials

    yield from compiled_trials(request, prepared.plans, said.append)


def _compiled(prepared: Prepared, found: SmokeReport, said: Sequence[Ready]) -> SmokeReport:
    """The report with the compiler's version and, where one was given, the baseline's changes."""
    from attnctl.smoke.compiling import against, with_versions

    found = with_versions(found, said)
    earlier, path = prepared.baseline, prepared.request.baseline
    return found if earlier is None or path is None else against(earlier, path, found)


def _children() -> int:
    """A child a core, and eight at most, since each takes memory for torch and a case."""
    import os

    return max(1, min(len(os.sched_getaffinity(0)), 8))


def _machine() -> Machine:
    from attnctl.probe import probe

    return probe()


def _backends(request: Request, registry: Registry) -> tuple[Backend, ...]:
    from attnctl.selection.options import backend_name

    runnable = runnable_backends(registry)
    if request.targets is not None and not request.backends:
        return compiled_backends(runnable)
    if not request.backends:
        return runnable
    wanted = {backend_name(name, registry, "--backend") for name in request.backends}
    planned = sorted(wanted - {one.name for one in runnable})
    if planned:
        text = ", ".join(planned)
        raise InputError(f"smoke: {text}: no kernel is written yet, so there is nothing to run")
    return tuple(one for one in runnable if one.name in wanted)


def _cases(request: Request) -> tuple[Case, ...]:
    """The cases that were named, those of a model, or all."""
    from attnctl.ops.case import split_case
    from attnctl.ops.catalog import all_cases, case_of

    if request.cases:
        return tuple(case_of(*split_case(text)) for text in request.cases)
    if request.model is not None:
        from attnctl.ops.model_cases import model_cases

        return model_cases(request.model)
    return all_cases()


def _of_ops(request: Request, cases: Sequence[Case]) -> tuple[Case, ...]:
    """The cases of the operations that were asked for.

    InputError: no such operation, or a case that was named is of another one.
    """
    from attnctl.ops.catalog import known_operation

    for op in request.ops:
        known_operation(op, "--op")
    kept = tuple(case for case in cases if not request.ops or case.op in request.ops)
    if request.cases and len(kept) < len(cases):
        (other, *_) = (case for case in cases if case not in kept)
        wanted = " or ".join(f"--op {op}" for op in request.ops)
        raise InputError(f"--case {other}: it is none of {wanted}; leave out one of them")
    return kept
