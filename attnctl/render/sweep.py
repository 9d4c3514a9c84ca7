"""The screen of several models or machines: one row per machine, one column per model or group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from attnctl.render.demands import titles
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Table, View
from attnctl.report import GroupReport, SelectReport, Sweep

PLANNED = " (planned)"


def sweep_view(sweep: Sweep) -> View:
    """Machines down, and across either the groups of the one model or the models."""
    rows = _rows(sweep)
    machines = distinct([reports[0].machine.name for reports in rows])
    by_group = sweep.models == 1 and len({titles(report) for report in sweep.reports}) == 1
    names = titles(rows[0][0]) if by_group else _models(rows[0])
    cells = [_groups(reports[0]) if by_group else list(map(_picks, reports)) for reports in rows]
    table = Table(
        ("machine", "device", *names),
        tuple(
            (machine, _device(reports[0]), *line)
            for machine, reports, line in zip(machines, rows, cells, strict=True)
        ),
    )
    return (
        *_heading(sweep),
        table,
        *_legend(cells),
        *_said(sweep, rows, machines),
        Line(_verdict(sweep)),
    )


def _rows(sweep: Sweep) -> list[tuple[SelectReport, ...]]:
    """The reports of each machine, by position: two machines may share a name."""
    step = max(1, sweep.models)
    return [sweep.reports[at : at + step] for at in range(0, len(sweep.reports), step)]


def distinct(labels: Sequence[str]) -> list[str]:
    """The labels, with #2 and on behind those that came before."""
    seen: Counter[str] = Counter()
    told = []
    for label in labels:
        seen[label] += 1
        told.append(label if seen[label] == 1 else f"{label} #{seen[label]}")
    return told


def _models(reports: Sequence[SelectReport]) -> list[str]:
    """Names of models, with as many of their folders as tell them apart."""
    paths = [_parts(report) for report in reports]
    names = []
    for own in paths:
        rivals = [other for other in paths if other != own and other[-1:] == own[-1:]]
        depth = 1
        while depth < len(own) and any(other[-depth:] == own[-depth:] for other in rivals):
            depth += 1
        names.append("/".join(own[-depth:]))
    return distinct(names)


def _parts(report: SelectReport) -> list[str]:
    path = report.model.path.rstrip("/").removesuffix("/config.json").removesuffix(".json")
    named = [part for part in path.split("/") if part]
    return named or [report.model.architecture or report.model.model_type or "model"]


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


def _heading(sweep: Sweep) -> Iterator[Block]:
    yield from _assumed(sweep)
    engines = dict.fromkeys(
        " ".join((one.engine, one.version, *(f"{k}={v}" for k, v in one.environment.items())))
        for one in (report.engine for report in sweep.reports)
        if one is not None
    )
    for engine in engines:
        yield Line(f"picks of {engine}, and attnctl's own in brackets where it is another")
    fits: dict[str, dict[str, None]] = {}
    for report in sweep.reports:
        if report.profile is not None:
            fits.setdefault(f"{report.profile.name}: {report.profile.status}", {})[
                report.machine.name
            ] = None
    for fit, machines in fits.items():
        yield Line(Mark(f"profile {fit} on {', '.join(machines)}", "dim"))


def _assumed(sweep: Sweep) -> list[Line]:
    because = dict.fromkeys(r.assumed_because for r in sweep.reports if r.assumed_because)
    if not because:
        return []
    text = next(iter(because)) if len(because) == 1 else "each bundled machine's usual image"
    return [Line(Mark(f"packages assumed: {text} (--assume-installed)", "dim"))]


def _legend(rows: Iterable[Iterable[Cell]]) -> Iterator[Block]:
    if any(PLANNED in str(cell) for row in rows for cell in row):
        yield Line(Mark("(planned): not runnable yet, its kernel is planned", "warn"))


def _said(
    sweep: Sweep, rows: Sequence[Sequence[SelectReport]], machines: Sequence[str]
) -> Iterator[Block]:
    """What the cells cannot hold: who was left out, demands unmet, refusals, differences."""
    for sentence in sweep.left_out:
        yield Line(Mark(sentence, "bad"))
    refusals: dict[str, dict[str, None]] = {}
    unmet: dict[str, dict[str, None]] = {}
    differing: dict[tuple[str, ...], dict[str, None]] = {}
    for machine, reports in zip(machines, rows, strict=True):
        for model, report in zip(_models(reports), reports, strict=True):
            place = machine if sweep.models == 1 else f"{model} on {machine}"
            for sentence in report.unmet:
                unmet.setdefault(sentence, {})[place] = None
            if report.engine is not None:
                for error in report.engine.errors:
                    refusals.setdefault(error, {})[place] = None
                for row in _differences(report):
                    differing.setdefault(row, {})[place] = None
    for sentence, places in unmet.items():
        yield Line(Mark(f"{sentence}: {', '.join(places)}", "bad"))
    for error, places in refusals.items():
        yield Line(Mark(f"refused: {error}: {', '.join(places)}", "bad"))
    if differing:
        yield Heading("where the engine and attnctl differ")
        names = ("layers", "engine", "attnctl", "because", "where")
        found = tuple((*row, ", ".join(places)) for row, places in differing.items())
        yield Table(names, found)


def _differences(report: SelectReport) -> Iterator[tuple[str, ...]]:
    """One row for each group whose picks differ; refusals stand in a line of their own."""
    if report.engine is None:
        return
    names = titles(report)
    for one in report.engine.differences:
        if one.engine is not None:
            yield (names[one.group], one.engine, one.registry or "none", one.because)


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
