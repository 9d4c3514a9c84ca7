"""A run of smoke from what the user asked for: its backends, cases and plans, then its report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from attnctl.compiling.declared import compiled_backends, declared
from attnctl.exits import InputError
from attnctl.machine import Machine
from attnctl.ops.case import Case
from attnctl.registry import Backend, Registry
from attnctl.smoke import (
    Plan,
    plan,
    refuse_untaken,
    report,
    runnable_backends,
    summary,
    with_imports,
)
from attnctl.smoke_place import read_place
from attnctl.smoke_streams import run_plans_here
from attnctl.trials import Ready, SmokeReport, Trial

LONGEST_CASE_S = 86_400.0
"""A day: the system's timers take no number much larger."""

CASE_S, COMPILE_S, EVERY_KNOB_S = 60.0, 300.0, 7200.0
"""Limits of one case where the user names none; a compiler's worst passes take a minute."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for, in the words of the command line."""

    every: bool = False
    backends: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    model: str | None = None
    device: str | None = None
    quick: bool = False
    twice: bool = False
    timeout_s: float | None = None
    listing: bool = False
    targets: str | None = None
    baseline: str | None = None
    most_spills_bytes: int | None = None
    every_knob: bool = False


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was found to make sense."""

    request: Request
    plans: tuple[Plan, ...]
    baseline: SmokeReport | None = None


def refuse(request: Request) -> None:
    """InputError where the options contradict each other or leave out what a run needs."""
    if request.every and request.backends:
        raise InputError("smoke: --all and --backend name different runs: leave out one of them")
    named = request.every or request.backends or request.targets is not None
    if not named and not request.listing:
        raise InputError("smoke: name a --backend, or say --all for every one with kernels")
    if request.timeout_s is not None and not 0 < request.timeout_s <= LONGEST_CASE_S:
        raise InputError(  # not-a-number is refused too
            f"--timeout {request.timeout_s:g}: must be more than 0 and at most "
            f"{LONGEST_CASE_S:g} seconds"
        )
    if request.cases and request.model is not None:
        raise InputError("smoke: --case and --model name different cases: leave out one of them")
    _refuse_mixed(request)


def _refuse_mixed(request: Request) -> None:
    """InputError for an option of a compilation in a run, and the other way round."""
    compiling = request.targets is not None
    for option, given, wants in (
        ("--baseline", request.baseline is not None, True),
        ("--spills", request.most_spills_bytes is not None, True),
        ("--every-knob", request.every_knob, True),
        ("--device", request.device is not None, False),
        ("--determinism", request.twice, False),
    ):
        if given and compiling is not wants:
            word = "needs --compile-for" if wants else "does not go with --compile-for"
            raise InputError(f"smoke: {option} {word}: compiled kernels are not run")
    if request.most_spills_bytes is not None and request.most_spills_bytes < 0:
        raise InputError(f"--spills {request.most_spills_bytes}: must be 0 or more bytes")


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
    place = None if request.device is None else read_place(request.device, machine)
    plans = [plan(one, machine, cases, place) for one in backends]
    if request.quick and not request.cases:  # a case that was named is wanted
        from attnctl.smoke_quick import quick

        plans = quick(plans)
    if request.every and (request.ops or request.model is not None):
        # of the others nothing was asked
        plans = [one for one in plans if one.runnable or one.refused] or plans
    return Prepared(request=request, plans=tuple(plans))


def _prepare_compilation(request: Request, backends: Sequence[Backend]) -> Prepared:
    from attnctl.compiling.baseline import read_report
    from attnctl.compiling.plan import plan_for
    from attnctl.compiling.targets import read_targets

    targets = read_targets(request.targets or "")
    earlier = None if request.baseline is None else read_report(request.baseline)
    asked = _cases(request) if request.cases or request.model is not None else None
    if asked is not None:
        refuse_untaken(asked, backends)
    plans = [
        plan_for(target, backend, _of_ops(request, cases), request.most_spills_bytes)
        for target in targets
        for backend in backends
        for cases in [declared(backend, request.quick) if asked is None else asked]
    ]
    if request.every_knob:
        plans = [msgspec.structs.replace(one, every_knob=True) for one in plans]
    if asked is None and not any(one.runnable or one.refused for one in plans):
        raise InputError("smoke: none of these backends has a kernel of ours to compile")
    return Prepared(request=request, plans=tuple(plans), baseline=earlier)


def run(prepared: Prepared) -> SmokeReport:
    """The trials of every plan, shown as they end, and what they come to."""
    from attnctl.render.smoke_live import LiveTable
    from attnctl.run import ended_by_signals

    said: list[Ready] = []
    trials: list[list[Trial]] = [[] for _ in prepared.plans]
    with ended_by_signals(), LiveTable(prepared.plans) as live:
        for place, trial in _trials(prepared, said):
            trials[place].append(trial)
            live.note(place, trial)
        results = [summary(one, kept) for one, kept in zip(prepared.plans, trials, strict=True)]
        if prepared.request.targets is None:
            return report(with_imports(results))
    return _compiled(prepared, report(results), said)


def _trials(prepared: Prepared, said: list[Ready]) -> Iterator[tuple[int, Trial]]:
    request = prepared.request
    if request.targets is None:
        yield from run_plans_here(
            prepared.plans, request.timeout_s or CASE_S, _children(), twice=request.twice
        )
        return
    from attnctl.compiling.run import run_plans

    timeout_s = request.timeout_s or (EVERY_KNOB_S if request.every_knob else COMPILE_S)
    yield from run_plans(prepared.plans, timeout_s, _children(), said.append)


def _compiled(prepared: Prepared, found: SmokeReport, said: Sequence[Ready]) -> SmokeReport:
    """The report with the compiler's version and, where one was given, the baseline's changes."""
    from attnctl.compiling.baseline import compare_with

    if said:
        found = msgspec.structs.replace(found, torch=said[0].torch, triton=said[0].triton)
    earlier, path = prepared.baseline, prepared.request.baseline
    if earlier is None or path is None:
        return found
    changed = compare_with(earlier, path, found)
    code = 1 if changed.worse else found.exit_code
    return msgspec.structs.replace(found, baseline=changed, exit_code=code)


def _children() -> int:
    """A child a core, but no more than a machine's memory bears: each holds a compiler."""
    import os

    return max(1, min(len(os.sched_getaffinity(0)), 8))


def _machine() -> Machine:
    from attnctl.probe import probe

    return probe()


def _backends(request: Request, registry: Registry) -> tuple[Backend, ...]:
    from attnctl.options import backend_name

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
    """The cases of the operations that were asked for. InputError: no such operation."""
    from attnctl.nearest import did_you_mean
    from attnctl.ops.catalog import OPERATIONS

    for op in request.ops:
        if op not in OPERATIONS:
            near = did_you_mean(op, OPERATIONS) or f" There are {', '.join(OPERATIONS)}."
            raise InputError(f"--op {op}: no such operation.{near}")
    return tuple(case for case in cases if not request.ops or case.op in request.ops)
