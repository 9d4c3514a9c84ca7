"""What is said around the table of a sweep: whose picks they are, and what no cell can hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attnctl.render.demands import titles
from attnctl.render.labels import placed
from attnctl.render.view import Block, Heading, Line, Mark, Table
from attnctl.selection.report import SelectReport, Sweep

Row = tuple[str, ...]
Placed = dict[str, list[str]]


def heading(sweep: Sweep) -> Iterator[Block]:
    yield from _assumed(sweep)
    engines = dict.fromkeys(
        " ".join((one.engine, one.version, *(f"{k}={v}" for k, v in one.environment.items())))
        for one in (report.engine for report in sweep.reports)
        if one is not None
    )
    for engine in engines:
        yield Line(f"picks of {engine}, and attnctl's own in brackets where it is another")
    fits = _placed(
        (f"{brief.name}: {brief.status}", report.machine.name)
        for report in sweep.reports
        for brief in report.profiles
        if brief.used or brief.origin in ("option", "environment")
    )
    for fit, names in fits.items():
        yield Line(Mark(f"profile {fit} on {', '.join(names)}", "dim"))


def _assumed(sweep: Sweep) -> list[Line]:
    because = dict.fromkeys(r.assumed_because for r in sweep.reports if r.assumed_because)
    if not because:
        return []
    text = next(iter(because)) if len(because) == 1 else "each bundled machine's usual image"
    return [Line(Mark(f"packages assumed: {text} (--assume-installed)", "dim"))]


def remarks(sweep: Sweep, rows: Sequence[Sequence[SelectReport]]) -> Iterator[Block]:
    """Who was left out, demands unmet, refusals, differences; rows: the reports of each machine."""
    for sentence in sweep.left_out:
        yield Line(Mark(sentence, "bad"))
    all_placed = placed(rows)
    unmet = _placed((sentence, where) for where, report in all_placed for sentence in report.unmet)
    refused = _placed(
        (f"refused: {error}", where)
        for where, report in all_placed
        if report.engine is not None
        for error in report.engine.errors
    )
    for sentence, places in {**unmet, **refused}.items():
        yield Line(Mark(f"{sentence}: {', '.join(places)}", "bad"))
    yield from _differing(all_placed)


def _differing(placed: Sequence[tuple[str, SelectReport]]) -> Iterator[Block]:
    differing: dict[Row, list[str]] = {}
    for where, report in placed:
        for row in _differences(report):
            differing.setdefault(row, []).append(where)
    if differing:
        yield Heading("where the engine and attnctl differ")
        names = ("layers", "engine", "attnctl", "because", "where")
        found = tuple((*row, ", ".join(places)) for row, places in differing.items())
        yield Table(names, found)


def _placed(told: Iterable[tuple[str, str]]) -> Placed:
    """Sentence -> the places that it is true of, each once."""
    found: Placed = {}
    for sentence, where in told:
        places = found.setdefault(sentence, [])
        if where not in places:
            places.append(where)
    return found


def _differences(report: SelectReport) -> Iterator[Row]:
    """One row for each group whose picks differ; refusals stand in a line of their own."""
    if report.engine is None:
        return
    names = titles(report)
    for one in report.engine.differences:
        if one.engine is not None:
            yield (names[one.group], one.engine, one.registry or "none", one.because)
