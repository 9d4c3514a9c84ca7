"""The screen of `attnctl select`: one table of picks, then per group what was rejected and why."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.decision import NOT_TIMED
from attnctl.engines.values import EngineReport
from attnctl.model.spec import Tower
from attnctl.render.amounts import bytes_text, count_text
from attnctl.render.block_sizes import block_notes
from attnctl.render.costs import cost_text, plan_lines
from attnctl.render.demands import demands, titles
from attnctl.render.profiled import maps, profile_facts, profile_notes
from attnctl.render.reasons import answers, every_finding
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Style, Table, View
from attnctl.selection.report import GroupReport, SelectReport

GAP = Line("")


def select_view(report: SelectReport, explain: str | None = None) -> View:
    """The whole screen; explain: one backend of which every finding is shown as well."""
    blocks: list[Block] = [Table((), tuple(_header(report))), GAP, _picks(report)]
    notes = [*report.model.notes, *profile_notes(report), *block_notes(report)]
    blocks += [Line(Mark(f"note: {note}", "warn")) for note in notes]
    blocks += [Line(Mark(sentence, "bad")) for sentence in report.unmet]
    blocks += answers(report)
    if explain:
        for name, group in zip(titles(report), report.groups, strict=True):
            blocks += every_finding(name, group, explain)
    blocks += maps(report)
    blocks += _costs(report)
    if report.engine is not None:
        from attnctl.render.engine import engine_blocks

        blocks += [GAP, *engine_blocks(list(titles(report)), report.engine)]
    return (*blocks, GAP, Line(_verdict(report)))


def _header(report: SelectReport) -> Iterable[tuple[Cell, ...]]:
    model, machine, device = report.model, report.machine, report.machine.device
    name = model.architecture or model.model_type or "unnamed model"
    dtype = model.dtype or "no dtype stated"
    yield _fact("model", f"{name}, {count_text(model.layers, 'layer')}, {dtype}", model.path)
    for label, tower in (("vision", model.vision), ("audio", model.audio)):
        if tower is not None:
            yield _fact(label, _tower(tower), tower.path)
    arch = f" ({device.arch})" if device.arch else ""
    memory = f", {bytes_text(device.memory_bytes)}" if device.memory_bytes else ""
    index = f", device {device.index} of {machine.device_count}" if machine.device_count > 1 else ""
    where = f"{machine.platform}, {device.name or machine.name}{arch}{memory}{index}"
    yield _fact("machine", where, f"{machine.name}, {machine.origin}")
    if report.assumed_because:
        yield _fact("assumed", ", ".join(report.assumed) or "no packages", report.assumed_because)
    for text, source in profile_facts(report):
        yield _fact("profile", text, source)


def _fact(label: str, text: str, source: str) -> tuple[Cell, ...]:
    return (Mark(label, "dim"), text + (f" [{source}]" if source else ""))


def _tower(tower: Tower) -> str:
    size = f", head size {tower.head_size}" if tower.head_size else ""
    heads = f", {tower.num_heads} heads" if tower.num_heads else ""
    layers = f"{count_text(tower.layers, 'layer')}" if tower.layers else "a tower"
    return f"{layers}{heads}{size}, not selected for"


def _picks(report: SelectReport) -> Table:
    rows = tuple(
        (name, demands(group), _pick(group), _why(group))
        for name, group in zip(titles(report), report.groups, strict=True)
    )
    return Table(("layers", "demands", "pick", "why"), rows, fixed=0)


def _pick(group: GroupReport) -> Cell:
    if group.winner is not None:
        style: Style = "good" if group.winner.runnable else "warn"
        return Mark(group.winner.name, style)
    return Mark("not needed", "dim") if group.answered else Mark("none", "bad")


def _why(group: GroupReport) -> str:
    if group.winner is not None:
        own = (note for note in group.notes if note != NOT_TIMED)  # said once, above
        notes = filter(None, (group.winner.note, *own))
        return "; ".join((f"{group.winner.why} [{group.winner.evidence}]", *notes))
    if group.answered:
        return "these layers hold no attention and no state"
    if group.requested:
        instead = f"; the order would give {group.would_pick}" if group.would_pick else ""
        return f"{group.requested} was requested and cannot serve these layers{instead}"
    if group.op is None:
        return "no backend computes layers of this kind"
    return "nothing is eligible: the reasons are below"


def _costs(report: SelectReport) -> Iterable[Block]:
    rows = tuple(
        (name, cost_text(group.cost))
        for name, group in zip(titles(report), report.groups, strict=True)
        if group.cost is not None and group.op is not None
    )
    if rows:
        rank = "" if report.options.tp == 1 else f", on each of {report.options.tp} ranks"
        yield from (Heading(f"what is kept in cache{rank}"), Table((), rows))
        if report.cache is not None:
            yield from (Line(sentence) for sentence in plan_lines(report.cache))


def _engine_verdict(machine: str, engine: EngineReport) -> Mark:
    """The answer of the engine, which is the one that was asked for."""
    if not engine.answered:
        return Mark(f"{machine}: {engine.engine} does not start this model here", "bad")
    picks = dict.fromkeys(group.pick for group in engine.groups if group.pick)
    chosen = " + ".join(picks) or "nothing that needs a backend"
    return Mark(f"{machine}: {engine.engine} takes {chosen}", "good")


def _verdict(report: SelectReport) -> Mark:
    missing = [
        (name, group)
        for name, group in zip(titles(report), report.groups, strict=True)
        if not group.answered
    ]
    machine = report.machine.name
    if report.unmet and not report.options.allow_fallback:
        return Mark(f"{machine}: a demand is not met: {'; '.join(report.unmet)}", "bad")
    if report.engine is not None:
        return _engine_verdict(machine, report.engine)
    if not missing:
        picks = dict.fromkeys(group.pick for group in report.groups if group.pick)
        return Mark(f"{machine}: {' + '.join(picks) or 'nothing needs a backend'}", "good")
    demanded = dict.fromkeys(group.requested for _, group in missing if group.requested)
    what = f"{', '.join(demanded)} cannot serve" if demanded else "no backend is eligible for"
    return Mark(f"{machine}: {what} {'; '.join(name for name, _ in missing)}", "bad")
