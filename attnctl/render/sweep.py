"""The screen of several models or machines: one row per machine, one column per model or group."""

from __future__ import annotations

from attnctl.render.demands import titles
from attnctl.render.view import Cell, Line, Mark, Table, View
from attnctl.report import SelectReport, Sweep


def sweep_view(sweep: Sweep) -> View:
    """Machines down, and across either the groups of the one model or the models."""
    rows: dict[str, list[SelectReport]] = {}
    for report in sweep.reports:
        rows.setdefault(report.machine.name, []).append(report)
    first = next(iter(rows.values()), [])
    one_model = len(first) == 1
    names = list(titles(first[0])) if one_model else map(_model, first)
    table = Table(
        ("machine", "device", *names),
        tuple(
            (machine, _device(reports[0]), *(_groups(reports[0]) if one_model else _picks(reports)))
            for machine, reports in rows.items()
        ),
    )
    return (*_assumed(sweep), table, Line(_verdict(sweep)))


def _model(report: SelectReport) -> str:
    name = report.model.path.rstrip("/").removesuffix("/config.json").rpartition("/")[2]
    return (
        name.removesuffix(".json")
        or report.model.architecture
        or report.model.model_type
        or "model"
    )


def _device(report: SelectReport) -> str:
    device = report.machine.device
    return device.arch or device.name or report.machine.platform


def _groups(report: SelectReport) -> list[Cell]:
    return [_cell(*answer) for answer in _answers(report)]


def _answers(report: SelectReport) -> list[tuple[str | None, bool]]:
    """Per group the pick, and whether that is an answer: the engine's where one was asked."""
    if report.engine is None:
        return [(group.pick, group.answered) for group in report.groups]
    return [(group.pick, group.error is None) for group in report.engine.groups]


def _picks(reports: list[SelectReport]) -> list[Cell]:
    cells = []
    for report in reports:
        found = _answers(report)
        answered = all(good for _, good in found)
        picks = dict.fromkeys(
            pick or "none"
            for group, (pick, _) in zip(report.groups, found, strict=True)
            if group.op
        )
        cells.append(_cell(" + ".join(picks), answered))
    return cells


def _cell(pick: str | None, answered: bool) -> Cell:
    if not answered:
        return Mark(pick or "none", "bad")
    return pick or Mark("not needed", "dim")


def _assumed(sweep: Sweep) -> list[Line]:
    because = dict.fromkeys(r.assumed_because for r in sweep.reports if r.assumed_because)
    if not because:
        return []
    text = next(iter(because)) if len(because) == 1 else "each bundled machine's usual image"
    return [Line(Mark(f"packages assumed: {text} (--assume-installed)", "dim"))]


def _verdict(sweep: Sweep) -> Mark:
    pairs = len(sweep.reports)
    unanswered = sum(report.exit_code != 0 for report in sweep.reports)
    if not unanswered:
        return Mark(f"every layer has a backend in all {pairs} cases", "good")
    return Mark(f"{unanswered} of {pairs} cases have layers without a backend", "bad")
