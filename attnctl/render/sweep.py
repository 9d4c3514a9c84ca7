"""The screen of several models or machines: one row per machine, one column per model or group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attnctl.render.demands import titles
from attnctl.render.labels import by_machine, machine_labels, model_labels
from attnctl.render.sweep_notes import heading, remarks
from attnctl.render.view import Block, Cell, Line, Mark, Table, View
from attnctl.selection.report import GroupReport, SelectReport, Sweep

PLANNED = " (planned)"


def sweep_view(sweep: Sweep) -> View:
    """Machines down, and across either the groups of the one model or the models."""
    rows = by_machine(sweep.reports, sweep.models)
    machines = machine_labels(rows)
    by_group = sweep.models == 1 and len({titles(report) for report in sweep.reports}) == 1
    names = titles(rows[0][0]) if by_group else model_labels(rows[0])
    cells = [_groups(reports[0]) if by_group else list(map(_picks, reports)) for reports in rows]
    table = Table(
        ("machine", "device", *names),
        tuple(
            (machine, _device(reports[0]), *line)
            for machine, reports, line in zip(machines, rows, cells, strict=True)
        ),
    )
    return (
        *heading(sweep),
        table,
        *_legend(cells),
        *remarks(sweep, rows),
        Line(_verdict(sweep)),
    )


def _device(report: SelectReport) -> str:
    device = report.machine.device
    return device.arch or device.name or report.machine.platform


def _groups(report: SelectReport) -> list[Cell]:
    return [_cell(*answer) for answer in _answers(report)]


Answer = tuple[str | None, bool]


def _answers(report: SelectReport) -> list[Answer]:
    """Per group the words for its pick, and whether that is an answer.

    Where an engine was asked the pick is the engine's, with this registry's where it is another.
    """
    if report.engine is None:
        return [(_own(group), group.answered) for group in report.groups]
    apart = {one.group for one in report.engine.differences}
    found: list[Answer] = []
    for place, (theirs, ours) in enumerate(zip(report.engine.groups, report.groups, strict=True)):
        pick = "refuses" if theirs.error else theirs.pick
        if place in apart:
            pick = f"{pick or 'none'} (attnctl {_own(ours) or 'none'})"
        found.append((pick, theirs.error is None))
    return found


def _own(group: GroupReport) -> str | None:
    """This registry's pick in words: what was demanded in vain, and what cannot run yet."""
    if group.pick is None:
        if group.requested is None:
            return None
        instead = f", would be {group.would_pick}" if group.would_pick else ""
        return f"none: {group.requested} unmet{instead}"
    planned = PLANNED if group.winner is not None and not group.winner.runnable else ""
    replaced = group.requested not in (None, group.pick)
    return f"{group.pick}{planned}" + (f" in place of {group.requested}" if replaced else "")


def _picks(report: SelectReport) -> Cell:
    found = _answers(report)
    needed = [
        answer
        for group, answer in zip(report.groups, found, strict=True)
        if group.op or not answer[1]
    ]
    picks = dict.fromkeys(pick or "none" for pick, _ in needed)
    return _cell(" + ".join(picks), all(good for _, good in found) and report.exit_code == 0)


def _cell(pick: str | None, answered: bool) -> Cell:
    if not answered:
        return Mark(pick or "none", "bad")
    if not pick:
        return Mark("not needed", "dim")
    return Mark(pick, "warn") if PLANNED in pick else pick


def _legend(rows: Iterable[Iterable[Cell]]) -> Iterator[Block]:
    if any(PLANNED in str(cell) for row in rows for cell in row):
        yield Line(Mark("(planned): not runnable yet, its kernel is planned", "warn"))


def _verdict(sweep: Sweep) -> Mark:
    pairs = len(sweep.reports)
    unanswered = sum(report.exit_code != 0 for report in sweep.reports)
    more = "; other machines were left out" if sweep.left_out else ""
    if unanswered:
        unmet = "a demand unmet or " if any(report.unmet for report in sweep.reports) else ""
        count = f"{unanswered} of {pairs} cases"
        return Mark(f"{count} have {unmet}layers without a backend{more}", "bad")
    every = f"every layer has a backend in all {pairs} cases"
    return Mark(f"{every}{more}", "bad" if more else "good")
