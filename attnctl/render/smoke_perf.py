"""The screen of times: a table per backend, what the device can do, what became slower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.render.view import Block, Cell, Heading, Line, Mark, Style, Table
from attnctl.smoke.trials import BackendTrials, Baseline, Ceiling, Change, SmokeReport, Timing

_CLOCKS = {
    "wall": "wall time",
    "process": "processor time of one thread",
    "events": "events",
    "queue": "events around queued calls",
    "graph": "replays of a CUDA graph",
}


def perf_blocks(report: SmokeReport) -> list[Block]:
    """What a run that timed adds to its screen."""
    blocks: list[Block] = [Line(_ceiling(one)) for one in report.ceilings]
    for backend in report.backends:
        blocks += _times(backend)
    untimed = [one.backend for one in report.backends if one.level == "interpret"]
    if untimed:
        names = ", ".join(untimed)
        said = f"{names}: interpreted, which says nothing of speed: not timed"
        blocks.append(Line(Mark(said, "dim")))
    if not any(trial.timing for one in report.backends for trial in one.trials):
        blocks.append(Line(Mark("nothing was timed", "warn")))
    if report.baseline is not None:
        blocks += _changes(report.baseline, report.ceilings)
    return blocks


def _ceiling(one: Ceiling) -> str:
    kind = "float32" if one.device == "cpu" else "bfloat16"
    return (
        f"{one.device}: reads {_short(one.read_gbps)} GB/s and multiplies {kind} at "
        f"{_short(one.matrix_gflops)} GFLOP/s, as measured here"
    )


def _times(backend: BackendTrials) -> Iterator[Block]:
    timed = [(trial.case, trial.timing) for trial in backend.trials if trial.timing]
    if not timed:
        return
    clocks = dict.fromkeys(_CLOCKS.get(one.clock, one.clock) for _, one in timed)
    yield Heading(f"{backend.backend} on {backend.device} ({' and '.join(clocks)})")
    columns = ("us", "+-", "GB/s", "GFLOP/s", "of the floor", "case")
    # the longest last: a case's text is as wide as it must be
    yield Table(columns, tuple(_row(case, one) for case, one in timed), 2, fixed=5)


def _row(case: str, one: Timing) -> tuple[Cell, ...]:
    return (
        _short(one.median_us),
        _short(one.iqr_us / 2),
        _short(one.gbps),
        _short(one.gflops),
        Mark(f"{100 * one.share:.0f} % {one.bound}".strip() if one.bound else "", _style(one)),
        case,
    )


def _style(one: Timing) -> Style:
    return "good" if one.share >= 0.5 else ""


def _changes(found: Baseline, ceilings: Sequence[Ceiling]) -> list[Block]:
    now = ceilings[0] if ceilings else None
    pairs = [
        ("torch", found.torch, now.torch if now else ""),
        ("triton", found.triton, now.triton if now else ""),
        ("driver", found.driver, next((one.driver for one in ceilings if one.driver), "")),
    ]
    words = [
        f"{name} {was or 'unknown'} then, {is_now or 'unknown'} now"
        for name, was, is_now in pairs
        if was != is_now
    ] or ["the same versions"]
    blocks: list[Block] = [Heading(f"Since {found.path} ({'; '.join(words)})")]
    rows = tuple(_change(one) for one in sorted(found.changes, key=lambda one: not one.worse))
    if rows:
        blocks.append(Table(("on", "what", "then", "now", "of"), rows, 2))
    cases = [one for one in found.changes if one.case]
    times = [one for one in cases if one.what == "median_us"]
    slow = sum(one.worse for one in times)
    counts = (
        f"{slow} slower",
        f"{len(times) - slow} faster",
        f"{found.same} the same",
        *(
            f"{number} {word}"
            for number, word in ((found.added, "new"), (found.gone, "gone"))
            if number
        ),
    )
    rule = f"beyond {found.slower_percent:g} % and beyond the spread of both, timed twice"
    blocks.append(Line(f"{', '.join(counts)} ({rule})", 2))
    if not found.same and not cases:
        said = "no case was timed both then and now: nothing was compared"
        blocks.append(Line(Mark(said, "warn"), 2))
    return blocks


def _change(one: Change) -> tuple[Cell, ...]:
    what = {"median_us": "us", "read_gbps": "GB/s read", "matrix_gflops": "GFLOP/s"}
    now = one.after
    if one.what == "median_us":
        now += f" ({float(one.after) / float(one.before):.2f}x)"
    of = f"{one.backend} {one.case}" if one.case else "the device itself"
    style: Style = "bad" if one.worse else "good" if one.what == "median_us" else "warn"
    return (one.target, what.get(one.what, one.what), one.before, Mark(now, style), of)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
