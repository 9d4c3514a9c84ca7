"""The screens of smoke: a line per backend, bad cases with their rerun lines, and the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attnctl.findings import Finding
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Style, Table, View
from attnctl.smoke.again import again
from attnctl.smoke.planning import Plan
from attnctl.smoke.trials import BAD, BackendTrials, SmokeReport, Trial

MOST_ALIKE = 3
"""Bad cases of a backend that are shown of those whose details are the same."""

_STYLES: dict[str, Style] = {"pass": "good", "unsupported": "dim", "unknown": "warn"}


def smoke_view(report: SmokeReport) -> View:
    if report.compiled:
        from attnctl.render.smoke_compiled import compiled_view

        return compiled_view(report)
    rows = tuple(_row(backend) for backend in report.backends)
    columns = ("backend", "level", "pass", "bad", "unsupported", "unknown", "seconds")
    bad = [line for one in report.backends for line in failures(report, one, one.backend)]
    times: list[Block] = []
    if report.perf:
        from attnctl.render.smoke_perf import perf_blocks

        times = perf_blocks(report)
    return (Table(columns, rows), *bad, *_noted(report), *_idle(report), *times, Line(_sum(report)))


def listing_view(plans: Sequence[Plan]) -> View:
    blocks: list[Heading | Line | Table] = []
    for plan in plans:
        count = "1 case" if len(plan.runnable) == 1 else f"{len(plan.runnable)} cases"
        # what is compiled is compiled for each of several targets
        target = f" for {plan.device}" if plan.level == "compile" else ""
        blocks.append(Heading(f"{plan.backend}: {count}, {plan.level}{target}"))
        if not plan.runnable:
            blocks.append(Line(Mark(why_nothing(plan.refused), "warn"), 2))
        blocks += [Line(text, 2, whole=True) for text in plan.runnable]
        blocks += [Line(Mark(f"{t.case} [{t.status}]", "dim"), 2) for t in plan.refused]
    return tuple(blocks)


def support_view(plans: Sequence[Plan]) -> View:
    """What each backend takes of each operation, and what stands in the way of the rest."""
    rows: list[tuple[Cell, ...]] = []
    for plan in plans:
        taken = Counter(text.partition("(")[0] for text in plan.runnable)
        refused: dict[str, list[Trial]] = {}
        for trial in plan.refused:
            refused.setdefault(trial.case.partition("(")[0], []).append(trial)
        for op in dict.fromkeys((*taken, *refused)):
            left = refused.get(op, [])
            count = f"{taken[op]} of {taken[op] + len(left)}"
            cell = Mark(count, "good" if taken[op] and not left else "warn" if taken[op] else "dim")
            rows.append((plan.backend, plan.device, op, cell, why_nothing(left) if left else ""))
    return (Table(("backend", "on", "operation", "takes", "of the rest"), tuple(rows), fixed=2),)


def _noted(report: SmokeReport) -> list[Line]:
    """A line for what stood in for kernels, with the backends that it did so in."""
    said: dict[str, list[str]] = {}
    for backend in report.backends:
        for note in dict.fromkeys(trial.note for trial in backend.trials if trial.note):
            said.setdefault(note, []).append(backend.backend)
    return [Line(Mark(f"{', '.join(names)}: {note}", "warn")) for note, names in said.items()]


def _idle(report: SmokeReport) -> list[Line]:
    """A line per backend that ran nothing, with its reasons; one for all that had no case.

    Where nothing ran at all, what every case of every backend lacks is said once, at the end.
    """
    idle = [one for one in report.backends if one.trials and not one.ran]
    shared = (
        () if report.ran or len(idle) < 2 else _in_each([t for one in idle for t in one.trials])
    )
    said = [
        f"{one.backend}: {why_nothing(one.trials, shared)}"
        for one in idle
        if not shared or len(_in_each(one.trials)) > len(shared)
    ]
    without = [one.backend for one in report.backends if not one.trials]
    if without:
        said.append(f"{', '.join(without)}: {why_nothing(())}")
    said += [f"every case of every backend: {_said(one, '')}" for one in shared]
    return [Line(Mark(text, "warn")) for text in said]


def _in_each(trials: Sequence[Trial]) -> tuple[Finding, ...]:
    """The reasons that stand in the way of every one of these cases."""
    found = Counter(reason for trial in trials for reason in dict.fromkeys(trial.reasons))
    return tuple(reason for reason, number in found.items() if number == len(trials))


def why_nothing(refused: Sequence[Trial], known: Sequence[Finding] = ()) -> str:
    """What most of the refused cases lack, with how many they are. known: said elsewhere."""
    if not refused:
        return "none of the cases is of an operation computed there"
    counts = Counter(trial.status for trial in refused)
    numbers = ", ".join(f"{number} {status}" for status, number in counts.most_common())
    # of one case as of all: what stands in every case's way, else what does in most
    found = Counter(reason for trial in refused for reason in dict.fromkeys(trial.reasons))
    common = [reason for reason in _in_each(refused) if reason not in known]
    reasons = common or [reason for reason, _ in found.most_common(2)]
    said = [_said(one, "" if common else f" ({found[one]} of them)") for one in reasons]
    return f"{numbers}: {'; '.join(said)}"


def _said(reason: Finding, share: str) -> str:
    fix = f" [{reason.fix}]" if reason.fix else ""
    return f"{reason.code}: wants {reason.wanted}, found {reason.found}{fix}{share}"


def _row(backend: BackendTrials) -> tuple[Cell, ...]:
    bad = backend.bad
    seconds = sum(trial.seconds for trial in backend.trials)
    return (
        backend.backend,
        "interpreted" if backend.level == "interpret" else backend.level,
        Mark(str(backend.count("pass")), _STYLES["pass"]),
        Mark(str(bad), "bad" if bad else ""),
        str(backend.count("unsupported")),
        str(backend.count("unknown")),
        f"{seconds:.1f}",
    )


def failures(report: SmokeReport, backend: BackendTrials, whose: str) -> list[Line]:
    """Each bad case with its detail and its rerun line, of many in the same words the first few.

    What kept cases from beginning is said once. whose: the name of what ran them.
    """
    alike: dict[tuple[str, str, bool], list[Trial]] = {}
    for trial in backend.trials:
        if trial.status in BAD:
            began = trial.seconds > 0
            alike.setdefault((trial.status, trial.detail, began), []).append(trial)
    lines: list[Line] = []
    for (status, detail, began), trials in alike.items():
        most = MOST_ALIKE if began else 1
        shown = trials if len(trials) <= most + 1 else trials[:most]
        for trial in shown:
            lines += [
                Line(Mark(f"{status}: {whose} {trial.case}", "bad")),
                Line(detail, 2),
                Line(f"again: {again(report, backend, trial)}", 2, whole=True),
            ]
        if more := len(trials) - len(shown):
            text = f"{status}: {more} more cases of {whose} in the same words; --json has them"
            lines.append(Line(Mark(text, "bad")))
    return lines


def _sum(report: SmokeReport) -> Cell:
    if not report.ran:
        taken = any(backend.trials for backend in report.backends)
        why = "every case was refused" if taken else "no backend computes any of the cases"
        return Mark(f"nothing ran: {why}", "bad")
    passed = report.ran - report.bad
    style: Style = "bad" if report.bad else "good"
    return Mark(f"{passed} of {report.ran} cases passed on {_backends(report)}", style)


def _backends(report: SmokeReport) -> str:
    count = sum(backend.ran > 0 for backend in report.backends)
    return f"{count} backend{'' if count == 1 else 's'}"
