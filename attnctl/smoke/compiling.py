"""The part of a run of smoke that compiles: its plans, its trials, and the compiler's versions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import msgspec

from attnctl.compiling.declared import declared
from attnctl.exits import InputError
from attnctl.ops.case import Case
from attnctl.registry import Backend
from attnctl.smoke.planning import Plan, refuse_untaken
from attnctl.smoke.request import Request
from attnctl.smoke.trials import Ready, SmokeReport, Trial

COMPILE_S = 300.0
"""Limit of one case, or of one launch of --every-knob; a compiler's worst passes take a minute."""

CHILD_BYTES = 1 << 30
"""What a child with a compiler may come to hold."""

MOST_CHILDREN = 64


def compile_plans(
    request: Request,
    backends: Sequence[Backend],
    asked: Sequence[Case] | None,
    of_ops: Callable[[Sequence[Case]], Sequence[Case]],
) -> list[Plan]:
    """A plan for each target and backend. asked: None for what the backends declare.

    of_ops: those of the cases that the user wants. InputError: nothing of it can be compiled.
    """
    from attnctl.compiling.plan import plan_for
    from attnctl.compiling.targets import read_targets

    targets = read_targets(request.targets or "")
    if asked is not None:
        refuse_untaken(asked, backends)
    plans = [
        plan_for(target, backend, of_ops(cases), request.most_spills_bytes)
        for target in targets
        for backend in backends
        for cases in [declared(backend, request.quick) if asked is None else asked]
    ]
    if request.every_knob:
        plans = [msgspec.structs.replace(one, every_knob=True) for one in plans]
    if asked is None and not any(one.runnable or one.refused for one in plans):
        raise InputError("smoke: none of these backends has a kernel of ours to compile")
    return plans


def compiled_trials(
    request: Request, plans: Sequence[Plan], ready: Callable[[Ready], None]
) -> Iterator[tuple[int, Trial]]:
    """(place of the plan, trial), as they end. InputError: the journal is none."""
    timeout_s = request.timeout_s or COMPILE_S
    children = request.jobs or most_children()
    if not request.every_knob:
        from attnctl.compiling.run import run_plans

        yield from run_plans(plans, timeout_s, children, ready)
        return
    from attnctl.compiling.knob_journal import open_journal
    from attnctl.compiling.knobs import compile_knobs
    from attnctl.render.knobs_bar import KnobsBar

    bar = KnobsBar()
    try:
        with open_journal(request.journal) as journal:
            yield from compile_knobs(
                plans, timeout_s, children, ready, journal=journal, told=bar.told
            )
    finally:
        bar.close()


def with_versions(found: SmokeReport, said: Sequence[Ready]) -> SmokeReport:
    """The report with the versions that the children named, where one got as far."""
    if not said:
        return found
    return msgspec.structs.replace(found, torch=said[0].torch, triton=said[0].triton)


def against(earlier: SmokeReport, path: str, found: SmokeReport) -> SmokeReport:
    """The report with what changed since an earlier one, which the file at the path holds."""
    from attnctl.compiling.baseline import compare_with

    changed = compare_with(earlier, path, found)
    code = 1 if changed.worse else found.exit_code
    return msgspec.structs.replace(found, baseline=changed, exit_code=code)


def most_children() -> int:
    """A child a core, as far as the memory that is free reaches."""
    import psutil

    room = int(psutil.virtual_memory().available) // CHILD_BYTES
    return max(1, min(len(os.sched_getaffinity(0)), room, MOST_CHILDREN))
