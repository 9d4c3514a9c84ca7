"""The screens of `attnctl profile validate`, `verify` and `diff`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attnctl.findings import Finding
from attnctl.profile.checks import Check
from attnctl.profile.diff import Changed, Difference
from attnctl.profile.rederive import Verification
from attnctl.render.amounts import count_text
from attnctl.render.profile import STYLES
from attnctl.render.profiled import time_text
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Table, View


def checks_view(checks: Iterable[Check], machine: str) -> View:
    """Per profile what is wrong, what a reader should know, and how it fits the machine."""
    blocks: list[Block] = []
    for one in checks:
        blocks.append(Heading(f"{one.name} [{one.path}]"))
        blocks += [Line(Mark(problem, "bad"), 2) for problem in one.problems]
        blocks += [Line(Mark(f"note: {note}", "warn"), 2) for note in one.notes]
        blocks += [Line(sentence, 2) for sentence in _unmet(one.findings)]
        skipped = f", {one.skipped} passed over" if one.skipped else ""
        fits = f"{one.status} on {machine}: {count_text(one.used, 'point')} used{skipped}"
        blocks.append(Line(Mark(fits, STYLES[one.status]), 2))
    return tuple(blocks) or (Line("no profiles to check"),)


def verification_view(found: Verification) -> View:
    """One row per layer shape, then what does not come out again."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (one.shape, f"{one.agreed} of {one.points}", one.pick or "none", ", ".join(one.untimed))
        for one in found.shapes
    )
    columns = ("shape", "picks that come out again", "select picks", "eligible here, not judged")
    blocks: list[Block] = [Table(columns, rows)]
    blocks += [Line(Mark(problem, "bad")) for problem in found.problems]
    for one in found.shapes:
        blocks += [Line(Mark(f"{one.shape}: {said}", "bad")) for said in one.differences]
    blocks += [Line(sentence) for sentence in _unmet(found.findings)]
    good = not found.exit_code
    answer = "every pick comes out again" if good else "not every pick comes out again"
    if found.status == "foreign":
        answer = "the profile is of other hardware"
    last = f"{found.name} on {found.machine}: {answer} [{found.status}]"
    return (*blocks, Line(Mark(last, "good" if good else "bad")))


def difference_view(found: Difference) -> View:
    """The fields that differ, the points that differ, and how many do not."""
    blocks: list[Block] = []
    if found.fields:
        rows = tuple((one.name, one.one, one.other) for one in found.fields)
        blocks.append(Table(("field", found.one, found.other), rows))
    if found.points:
        columns = ("shape", "point", found.one, found.other, "cost")
        blocks.append(Table(columns, tuple(_changed(one) for one in found.points)))
    same = f"{count_text(found.equal, 'point')} with the same pick"
    more = f", {len(found.points)} with another" if found.points else ""
    return (*blocks, Line(f"{same}{more}"))


def _changed(one: Changed) -> tuple[Cell, ...]:
    cost = "" if one.ratio is None else f"{one.ratio:.2f}x"
    sides = ((one.one, one.one_us), (one.other, one.other_us))
    texts = (
        "not there" if pick is None else f"{pick}, {time_text(time_us)}" for pick, time_us in sides
    )
    return (one.shape, one.point, *texts, cost)


def _unmet(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        if not finding.met:
            yield f"measured with {finding.wanted}, here is {finding.found}"
