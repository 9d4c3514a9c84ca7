"""The command that brings one case of a run of smoke back, as the run was asked for."""

from __future__ import annotations

import shlex

from attnctl.smoke.request import Request
from attnctl.smoke.trials import BackendTrials, SmokeReport, Trial


def options_of(request: Request) -> tuple[str, ...]:
    """The words of a run that a case's result may hang on, beside its backend, target and text."""
    words: list[str] = []
    for option, value in (
        ("--device", request.device),
        ("--timeout", request.timeout_s),
        ("--spills", request.most_spills_bytes),
    ):
        if value is not None:
            words += [option, f"{value:g}" if isinstance(value, float) else str(value)]
    for option, given in (
        ("--determinism", request.twice),
        ("--perf", request.perf),
        ("--every-knob", request.every_knob),
    ):
        words += [option] * given
    return tuple(words)


def again(report: SmokeReport, one: BackendTrials, trial: Trial) -> str:
    """What to paste into a shell for this case of the report alone."""
    target = ("--compile-for", one.device) if report.compiled else ()
    words = shlex.join(["attnctl", "smoke", "--backend", one.backend, *target, *report.options])
    return f"{words} --case '{trial.case}'"
