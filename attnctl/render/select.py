"""The screen of `attnctl select`: one table of picks, then per group what was rejected and why."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.findings import Finding, Verdict
from attnctl.model.spec import Tower
from attnctl.render.amounts import bytes_text, count_text, ranges
from attnctl.render.demands import demands
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Style, Table, View
from attnctl.report import CandidateReport, GroupReport, SelectReport

REASON_COLUMNS = ("rejected", "reason", "wanted", "found", "fix")


def select_view(report: SelectReport, explain: str | None = None) -> View:
    """The whole screen; explain: one backend of which every finding is shown as well."""
    blocks: list[Block] = [*_header(report), _picks(report)]
    blocks += [Line(_mark_note(note)) for note in report.model.notes]
    for group in report.groups:
        if group.candidates:
            blocks += _group(group, alone=len(report.groups) == 1)
    if explain:
        for group in report.groups:
            blocks += _every_finding(group, explain)
    return (*blocks, Line(_verdict(report)))


def title(group: GroupReport) -> str:
    """ "full layers 0-31", with the stack where a model has several."""
    stack = f"{group.layer.stack} " if group.layer.stack else ""
    return f"{stack}{group.kind} {ranges(group.layers)}"


def _header(report: SelectReport) -> list[Block]:
    model, machine, device = report.model, report.machine, report.machine.device
    name = model.architecture or model.model_type or "unnamed model"
    dtype = model.dtype or "no dtype stated"
    rows: list[tuple[Cell, ...]] = [
        ("model", f"{name}, {count_text(model.layers, 'layer')}, {dtype}", Mark(model.path, "dim"))
    ]
    arch = f" ({device.arch})" if device.arch else ""
    memory = f", {bytes_text(device.memory_bytes)}" if device.memory_bytes else ""
    where = f"{machine.platform}, {device.name or machine.name}{arch}{memory}"
    rows.append(("machine", where, Mark(f"{machine.name}, {machine.origin}", "dim")))
    if report.assumed_because:
        packages = ", ".join(report.assumed) or "no packages"
        rows.append(("assumed", packages, Mark(report.assumed_because, "dim")))
    for label, tower in (("vision", model.vision), ("audio", model.audio)):
        if tower is not None:
            rows.append((label, _tower(tower), Mark(tower.path, "dim")))
    return [Table((), tuple(rows))]


def _tower(tower: Tower) -> str:
    size = f", head size {tower.head_size}" if tower.head_size else ""
    heads = f", {tower.num_heads} heads" if tower.num_heads else ""
    return f"{count_text(tower.layers or 0, 'layer')}{heads}{size} (a tower: not selected for)"


def _mark_note(note: str) -> Mark:
    return Mark(f"note: {note}", "warn")


def _picks(report: SelectReport) -> Table:
    rows = tuple(
        (title(group), demands(group), _pick_cell(group), _why(group)) for group in report.groups
    )
    return Table(("layers", "demands", "pick", "why"), rows, fixed=0)


def _pick_cell(group: GroupReport) -> Cell:
    if group.winner is not None:
        style: Style = "good" if group.winner.runnable else "warn"
        return Mark(group.winner.name, style)
    return Mark("none", "bad") if not group.answered else Mark("not needed", "dim")


def _why(group: GroupReport) -> str:
    if group.winner is not None:
        notes = [group.winner.note, *group.notes]
        return "; ".join([f"{group.winner.why} [{group.winner.evidence}]", *filter(None, notes)])
    if group.answered:
        return "these layers hold no attention and no state"
    if group.requested:
        instead = f"; the order would give {group.would_pick}" if group.would_pick else ""
        return f"{group.requested} was requested and cannot serve these layers{instead}"
    return "nothing eligible: see the reasons below"


def _group(group: GroupReport, alone: bool) -> list[Block]:
    blocks: list[Block] = [] if alone else [Heading(title(group))]
    rejected = [c for c in group.candidates if not c.ok and _is_near(c, group)]
    blocks.append(Line(_runners_up(group)))
    if rejected:
        rows = (row for candidate in rejected for row in reason_rows(candidate))
        blocks.append(Table(REASON_COLUMNS, tuple(rows), fixed=2))
    away = [c.name for c in group.candidates if not c.ok and not _is_near(c, group)]
    if away:
        blocks.append(Line(Mark(f"for other layers or platforms: {', '.join(away)}", "dim")))
    blocks += _cost(group)
    blocks += _what_if(group)
    return blocks


def _is_near(candidate: CandidateReport, group: GroupReport) -> bool:
    """True where its reasons are shown: it could serve such layers here, or it was asked for."""
    return candidate.name == group.requested or not candidate.elsewhere


def _runners_up(group: GroupReport) -> str:
    if group.winner is None:
        eligible = [candidate.name for candidate in group.candidates if candidate.ok]
        return f"eligible: {', '.join(eligible) or 'none'}"
    behind = [c.name for c in group.candidates if c.ok and c.name != group.pick]
    return f"also eligible, in this order: {', '.join(behind) or 'none'}"


def reason_rows(candidate: CandidateReport) -> Iterable[tuple[Cell, ...]]:
    """One row per reason; the name stands on the first."""
    for place, finding in enumerate(candidate.reasons):
        name = candidate.name if place == 0 else ""
        yield (name, finding.code, finding.wanted, _found(finding), finding.fix)


def _found(finding: Finding) -> Cell:
    source = f" [{finding.source}]" if finding.source else ""
    style: Style = "warn" if finding.verdict is Verdict.UNKNOWN else "bad"
    prefix = "unknown: " if finding.verdict is Verdict.UNKNOWN else ""
    return Mark(f"{prefix}{finding.found}{source}", style)


def _cost(group: GroupReport) -> list[Block]:
    if group.cost is None:
        return []
    return [Line(f"cache: {group.cost.text()}")]


def _what_if(group: GroupReport) -> list[Block]:
    if group.what_if is None:
        return []
    if not group.what_if:
        return [Line("what if: no single change gives these layers another backend")]
    rows = tuple(
        (flip.change, Mark(flip.after or "none", "good" if flip.after else "bad"))
        for flip in group.what_if
    )
    return [Table(("what if", f"instead of {group.pick or 'none'}"), rows)]


def _every_finding(group: GroupReport, name: str) -> list[Block]:
    candidate = next((c for c in group.candidates if c.name == name), None)
    if candidate is None:
        return []
    answer = "eligible" if candidate.ok else "rejected"
    if candidate.name == group.pick:
        answer = "the pick"
    rows = tuple(
        (_verdict_mark(finding), finding.code, finding.wanted, _plain_found(finding), finding.fix)
        for finding in candidate.findings
    )
    place = (
        "no place in this platform's order"
        if candidate.place is None
        else (f"place {candidate.place} in this platform's order")
    )
    return [
        Heading(f"{name} for {title(group)}: {answer}; {place}; kernel: {candidate.kernel}"),
        Table(("verdict", "rule", "wanted", "found", "fix"), rows, fixed=2),
    ]


def _verdict_mark(finding: Finding) -> Mark:
    styles: dict[Verdict, Style] = {Verdict.MET: "good", Verdict.UNMET: "bad"}
    return Mark(finding.verdict.value, styles.get(finding.verdict, "warn"))


def _plain_found(finding: Finding) -> str:
    return f"{finding.found} [{finding.source}]" if finding.source else finding.found


def _verdict(report: SelectReport) -> Mark:
    return Mark(sentence(report), "good" if report.exit_code == 0 else "bad")


def sentence(report: SelectReport) -> str:
    """The last line: what runs this model here, or what it lacks."""
    missing = [group for group in report.groups if not group.answered]
    if not missing:
        picks = dict.fromkeys(group.pick for group in report.groups if group.pick)
        return f"{report.machine.name}: {' + '.join(p for p in picks if p) or 'nothing to serve'}"
    groups = "; ".join(title(group) for group in missing)
    demanded = dict.fromkeys(group.requested for group in missing if group.requested)
    what = f"{', '.join(demanded)} cannot serve" if demanded else "no backend is eligible for"
    return f"{report.machine.name}: {what} {groups}"
