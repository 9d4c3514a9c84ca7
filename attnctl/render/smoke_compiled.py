"""The screen of a cross-compilation: a row a backend, a column a target, then what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from attnctl.render.smoke import failures, why_nothing
from attnctl.render.view import Cell, Heading, Line, Mark, Table, View
from attnctl.smoke.trials import BackendTrials, Baseline, Change, SmokeReport


def compiled_view(report: SmokeReport) -> View:
    rows = list(dict.fromkeys(one.backend for one in report.backends))
    columns = list(dict.fromkeys(one.device for one in report.backends))
    places = {(one.backend, one.device): one for one in report.backends}
    table = Table(
        ("backend", *columns),
        tuple((row, *(_cell(places.get((row, column))) for column in columns)) for row in rows),
    )
    bad = [
        line
        for one in report.backends
        for line in failures(report, one, f"{one.backend} {one.device}")
    ]
    blocks: list[Heading | Line | Table] = [table, *bad, *_refused(report.backends)]
    if report.baseline is not None:
        blocks += _baseline(report.baseline, report.triton)
    return (*blocks, Line(_sum(report)))


def _cell(one: BackendTrials | None) -> Cell:
    if one is None or not one.trials:
        return ""
    if one.bad:
        return Mark(f"{one.bad} bad", "bad")
    return Mark(f"{one.count('pass')} ok", "good") if one.ran else Mark("no", "dim")


def _refused(backends: Sequence[BackendTrials]) -> list[Line]:
    """A line for each reason why cases were not compiled, with the pairs that it holds for."""
    reasons: dict[str, list[str]] = {}
    for one in backends:
        refused = [trial for trial in one.trials if trial.reasons]
        if refused:
            reasons.setdefault(why_nothing(refused), []).append(f"{one.backend} {one.device}")
    return [
        Line(Mark(f"{', '.join(pairs)}: {why}", "dim" if pairs else ""))
        for why, pairs in reasons.items()
    ]


def _baseline(found: Baseline, triton: str) -> list[Heading | Line | Table]:
    versions = f"triton {found.triton or 'unknown'} then, {triton or 'unknown'} now"
    blocks: list[Heading | Line | Table] = [Heading(f"Since {found.path} ({versions})")]
    rows = tuple(_change(one) for one in sorted(found.changes, key=lambda one: not one.worse))
    if rows:
        blocks.append(Table(("target", "what", "then", "now", "of"), rows, 2))
    counts = {"new": found.added, "gone": found.gone}
    words = (
        f"{_many(found.same, 'case')} {'is' if found.same == 1 else 'are'} the same",
        _many(len(rows), "difference"),
        f"{found.worse} for the worse",
        *(f"{number} {word}" for word, number in counts.items() if number),
    )
    return [*blocks, Line(", ".join(words), 2)]


def _change(one: Change) -> tuple[Cell, ...]:
    what = " ".join(filter(None, (one.kernel, one.what.replace("_bytes", ""))))
    return (
        one.target,
        what,
        one.before,
        Mark(one.after, "bad" if one.worse else ""),
        f"{one.backend} {one.case}",
    )


def _sum(report: SmokeReport) -> Cell:
    if not report.ran:
        return Mark("nothing was compiled: every case was refused", "bad")
    launches = sum(len(trial.launches) for one in report.backends for trial in one.trials)
    targets = len({one.device for one in report.backends if one.ran})
    good = report.ran - report.bad
    text = f"{good} of {_many(report.ran, 'case')}, {_many(launches, 'launch', 'es')}"
    text += f", compiled for {_many(targets, 'target')}"
    if report.triton:
        text += f" with triton {report.triton}"
    return Mark(text, "bad" if report.exit_code else "good")


def _many(count: int, word: str, plural: str = "s") -> str:
    return f"{count} {word}{'' if count == 1 else plural}"
