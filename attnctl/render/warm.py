"""The screen of warm: what was compiled for each setting, and how far it is while it runs."""

from __future__ import annotations

from attnctl.render.tune import Bar
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Table, View
from attnctl.warming.values import Warmed, WarmReport


class WarmBar(Bar):
    """Says on standard error how many settings are done; silent where that is no terminal."""

    total = 0

    def told(self, done: int, warmed: Warmed) -> None:
        made = warmed.made
        new = len(made.compiled) + len(made.built)
        what = f"{new} compiled" if made.status == "ready" else made.status
        self.show(done, self.total, f"; {warmed.backend} with {warmed.setting}: {what}")


def warm_view(report: WarmReport) -> View:
    blocks: list[Block] = []
    for shape in dict.fromkeys(one.shape for one in report.jobs):
        blocks.append(Heading(shape))
        rows = tuple(_row(one) for one in report.jobs if one.shape == shape)
        columns = ("backend", "setting", "batches", "compiled", "there already", "s", "")
        blocks.append(Table(columns, rows, indent=2).compact())
    blocks += [Line(Mark(text, "warn")) for text in report.notes]
    return (*blocks, Line(_sum(report)))


def _row(one: Warmed) -> tuple[Cell, ...]:
    made = one.made
    new = len(made.compiled) + len(made.built)
    fault = "" if made.status == "ready" else f"{made.status}: {made.detail}"
    counts = (str(made.ran or ""), str(new or ""), str(made.found or ""), f"{made.seconds:.1f}")
    return (one.backend, one.setting, *counts, Mark(fault, "bad"))


def _sum(report: WarmReport) -> Cell:
    failed = sum(one.made.status != "ready" for one in report.jobs)
    made = f"{report.compiled} kernels compiled and {report.built} shared objects built"
    there = f"{report.found} kernels were there already"
    told = f"{made} in {report.seconds:.0f} s, {there}, on {report.device}"
    if failed:
        return Mark(f"{failed} of {len(report.jobs)} settings failed; {told}", "bad")
    return Mark(told, "good")
