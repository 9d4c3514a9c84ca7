"""The screens of tune: a bar while it runs, then who won at each point and by how much."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from attnctl.profile.ratio import times_text
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Table, View
from attnctl.tune.report import Row, TuneReport
from attnctl.tune.run import Step
from attnctl.tune.settings import Setting

BAR = 24
MOST_FAILURES = 12


class Bar:
    """A line on standard error that says how far a run is.

    Silent where that is no terminal, or one that cannot take a line back.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown = (
            self._stream is not None and self._stream.isatty() and os.environ.get("TERM") != "dumb"
        )

    def show(self, done: int, total: int, words: str) -> None:
        if self._shown:
            from shutil import get_terminal_size

            width = max(20, get_terminal_size().columns - 1)
            text = f"{_bar(done, total)} {done}/{total}{words}"
            self._stream.write(f"\r\x1b[K{text[:width]}")
            self._stream.flush()

    def close(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class Progress(Bar):
    """How far a tune is, with the best so far and the time that is left."""

    def begin(self, total: int) -> None:
        self.show(0, total, " points, compiling and judging the first settings")

    def step(self, step: Step) -> None:
        best = step.measured.best()
        found = f"nothing could be timed at {step.task.load}"
        if best is not None:
            setting = Setting(knobs=best.knobs, kernel=best.kernel)
            found = f"{best.backend} {best.median_us:.4g} us at {step.task.load} with {setting}"
        left = "" if step.left_s is None else f", about {_time(step.left_s)} left"
        self.show(step.done, step.total, f"{left}; {found}")


def _bar(done: int, total: int) -> str:
    full = BAR * done // max(1, total)
    return f"[{'#' * full}{'.' * (BAR - full)}]"


def _time(seconds: float) -> str:
    if seconds >= 100:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s"


def tune_view(report: TuneReport) -> View:
    blocks: list[Block] = []
    for one in report.shapes:
        blocks.append(Heading(str(one.shape)))
        blocks.append(
            Table(
                ("point", "fastest", "setting", "us", "vs bundled", "tried", "pruned", "failed"),
                tuple(_row(row) for row in one.rows),
                indent=2,
                spare=(6,),
            )
        )
    shown = report.failures[:MOST_FAILURES]
    blocks += [Line(Mark(text, "bad")) for text in shown]
    if len(report.failures) > len(shown):
        rest = len(report.failures) - len(shown)
        blocks.append(Line(Mark(f"and {rest} failures more, in the profile", "bad")))
    blocks += [Line(Mark(text, "warn")) for text in report.notes]
    return (*blocks, Line(_sum(report)))


def _row(row: Row) -> tuple[Cell, ...]:
    counts = (str(row.tried), str(row.pruned or ""), Mark(str(row.failed or ""), "bad"))
    if row.backend is None or row.median_us is None:
        return (str(row.load), Mark("none", "bad"), "", "", "", *counts)
    setting = str(Setting(knobs=row.knobs, kernel=row.kernel))
    ratio = row.ratio
    style = "good" if ratio is not None and ratio < 0.98 else ""
    shown = "" if ratio is None else f"{times_text(ratio)} {row.bundled}"
    return (
        str(row.load),
        Mark(row.backend, "strong"),
        setting,
        f"{row.median_us:.4g}",
        Mark(shown, "good" if style else ""),
        *counts,
    )


def _sum(report: TuneReport) -> Cell:
    rows = [row for one in report.shapes for row in one.rows]
    timed = [row for row in rows if row.backend]
    if not timed:
        return Mark("no point could be timed: see the failures above", "bad")
    ratios = [row.ratio for row in timed if row.ratio]
    product = 1.0
    for ratio in ratios:
        product *= ratio ** (1 / len(ratios))
    return Mark(
        f"{len(timed)} of {len(rows)} points timed in {_time(report.seconds)} on {report.device}; "
        f"{times_text(product)} the time of the bundled choices; the profile is {report.output}",
        "good",
    )
