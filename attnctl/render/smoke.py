"""The screens of smoke: a line per backend, every bad case with its rerun line, and the sum."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from attnctl.findings import Finding
from attnctl.render.view import Cell, Heading, Line, Mark, Style, Table, View
from attnctl.smoke import Plan
from attnctl.trials import BAD, BackendTrials, SmokeReport, Trial

_STYLES: dict[str, Style] = {"pass": "good", "unsupported": "dim", "unknown": "warn"}


class Progress:
    """Says on standard error how far the run is; silent where that is no terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._bad = 0
        self._start = time.monotonic()
        self._shown = sys.stderr.isatty()

    def watch(self, plan: Plan, trials: Iterable[Trial]) -> Iterator[Trial]:
        for trial in trials:
            if trial.status not in ("unsupported", "unknown"):
                self._done += 1
                self._bad += trial.status in BAD
                self._say(plan.backend)
            yield trial

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")

    def _say(self, backend: str) -> None:
        if not self._shown:
            return
        took = time.monotonic() - self._start
        left = took / self._done * (self._total - self._done)
        bad = f", {self._bad} bad" if self._bad else ""
        text = f"{self._done}/{self._total} cases{bad}, {backend}, about {left:.0f} s left"
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def smoke_view(report: SmokeReport) -> View:
    rows = tuple(_row(backend) for backend in report.backends)
    columns = ("backend", "level", "pass", "bad", "unsupported", "unknown", "seconds")
    bad = [
        block
        for backend in report.backends
        for trial in backend.trials
        if trial.status in BAD
        for block in _failure(backend, trial)
    ]
    return (Table(columns, rows), *bad, *_idle(report), Line(_sum(report)))


def listing_view(plans: Sequence[Plan]) -> View:
    blocks: list[Heading | Line | Table] = []
    for plan in plans:
        blocks.append(Heading(f"{plan.backend}: {len(plan.runnable)} cases, {plan.level}"))
        if not plan.runnable:
            blocks.append(Line(Mark(why_nothing(plan.refused), "warn"), 2))
        blocks += [Line(text, 2) for text in plan.runnable]
        blocks += [Line(Mark(f"{t.case} [{t.status}]", "dim"), 2) for t in plan.refused]
    return tuple(blocks)


def _idle(report: SmokeReport) -> list[Line]:
    """A line per backend that ran nothing, with its reasons; one for all that had no case."""
    said = [
        f"{one.backend}: {why_nothing(one.trials)}"
        for one in report.backends
        if one.trials and not one.ran
    ]
    without = [one.backend for one in report.backends if not one.trials]
    if without:
        said.append(f"{', '.join(without)}: {why_nothing(())}")
    return [Line(Mark(text, "warn")) for text in said]


def why_nothing(refused: Sequence[Trial]) -> str:
    """What most of the refused cases lack, with how many they are."""
    if not refused:
        return "none of the cases is of an operation computed there"
    counts = Counter(trial.status for trial in refused)
    numbers = ", ".join(f"{number} {status}" for status, number in counts.most_common())
    # of one case as of all: what stands in every case's way, else what does in most
    found = Counter(reason for trial in refused for reason in dict.fromkeys(trial.reasons))
    common = [reason for reason, number in found.items() if number == len(refused)]
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


def _failure(backend: BackendTrials, trial: Trial) -> list[Line]:
    first = Line(Mark(f"{trial.status}: {backend.backend} {trial.case}", "bad"))
    rerun = f"attnctl smoke --backend {backend.backend} --case '{trial.case}'"
    return [first, Line(trial.detail, 2), Line(f"again: {rerun}", 2)]


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
