"""What --perf adds to a run of smoke: larger cases, and what changed since an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from attnctl.compiling.baseline import decoded_report
from attnctl.exits import Exit, InputError
from attnctl.ops.case import Case
from attnctl.perf.baseline import SLOWER_PERCENT, better, compare_times, suspects
from attnctl.perf.cases import serving_cases, serving_of
from attnctl.perf.ceilings import timed_devices
from attnctl.perf.rates import rated
from attnctl.profile.values import SHORTEST_US
from attnctl.smoke.planning import Plan, run_plan, summary
from attnctl.smoke.request import LONGEST_CASE_S
from attnctl.smoke.trials import BackendTrials, Ceiling, SmokeReport, Timing

if TYPE_CHECKING:
    from attnctl.smoke.running import Prepared

LONGEST_US = 1e6 * LONGEST_CASE_S
"""No case may take longer, nor may its rounds lie further apart."""

Planner = Callable[[str, Sequence[Case]], Plan]
"""A backend's name and cases -> what of them it would run here."""


def with_serving(
    plans: Sequence[Plan], model: Sequence[Case] | None, ops: Sequence[str], planner: Planner
) -> list[Plan]:
    """The plans that are timed with cases of serving's size behind their own.

    model: the cases of a model, whose widths these take then. ops: the only operations, if any.
    """
    every = serving_cases() if model is None else serving_of(model)
    cases = [one for one in every if not ops or one.op in ops]
    timed = timed_devices(plans)
    return [
        _longer(one, planner(one.backend, cases)) if one.device in timed else one for one in plans
    ]


def _longer(one: Plan, more: Plan) -> Plan:
    new = tuple(text for text in more.runnable if text not in one.runnable)
    return msgspec.structs.replace(
        one, runnable=(*one.runnable, *new), refused=(*one.refused, *more.refused)
    )


def read_times(path: str) -> SmokeReport:
    """What an earlier run wrote as --perf --json. InputError: the file is not that."""
    found = decoded_report(path, "--all --perf")
    if not found.ceilings:
        raise InputError(f"{path}: nothing in it was timed; write one with smoke --perf --json")
    _refuse_damaged(found, path)
    return found


def _refuse_damaged(found: SmokeReport, path: str) -> None:
    """InputError for a time that no clock gives: compared with, it would make nonsense."""
    for backend in found.backends:
        for trial in backend.trials:
            one = trial.timing
            if one is not None and not _is_a_time(one):
                raise InputError(
                    f"{path}: {backend.backend} {trial.case}: {one.median_us:g} us with a spread "
                    f"of {one.iqr_us:g} is no time; write one with smoke --perf --json"
                )


def _is_a_time(one: Timing) -> bool:
    return SHORTEST_US <= one.median_us < LONGEST_US and 0 <= one.iqr_us < LONGEST_US


def timed_report(
    prepared: Prepared, found: SmokeReport, ceilings: Mapping[str, Ceiling], limit_s: float
) -> SmokeReport:
    """The report with rates and, where one was given, what changed since a baseline."""
    found = msgspec.structs.replace(
        found,
        backends=tuple(rated(found.backends, ceilings)),
        perf=True,
        ceilings=tuple(ceilings.values()),
    )
    request, earlier = prepared.request, prepared.baseline
    if earlier is None or request.baseline is None:
        return found

    def again(one: Plan) -> BackendTrials:
        trials = run_plan(one, limit_s, cache_bytes=ceilings[one.device].cache_bytes)
        (timed,) = rated([summary(one, trials)], ceilings)
        return timed

    percent = request.slower_percent
    return compared(earlier, request.baseline, found, percent, prepared.plans, again)


def compared(
    earlier: SmokeReport,
    path: str,
    now: SmokeReport,
    percent: float | None,
    plans: Sequence[Plan],
    again: Callable[[Plan], BackendTrials],
) -> SmokeReport:
    """The report with what became slower. What looks so is timed once more first.

    again: runs a plan anew, with rates. A run that shares no timed case with the earlier one is no
    comparison, and not a good one.
    """
    threshold = SLOWER_PERCENT if percent is None else percent
    doubted = suspects(earlier, now, threshold)
    results = list(now.backends)
    for place, one in enumerate(plans):
        cases = doubted.get(f"{one.device} {one.backend}")
        if cases:
            fewer = msgspec.structs.replace(one, runnable=cases, refused=())
            results[place] = better(results[place], again(fewer))
    now = msgspec.structs.replace(now, backends=tuple(results))
    found = compare_times(earlier, path, now, threshold)
    nothing = not found.same and not any(change.case for change in found.changes)
    bad = found.worse or nothing or now.bad
    code = Exit.NO if bad else now.exit_code
    return msgspec.structs.replace(now, baseline=found, exit_code=int(code))
