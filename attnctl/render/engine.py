"""The part of select's screen that says what an engine would do with the same facts."""

from __future__ import annotations

from collections.abc import Sequence

from attnctl.engines.values import EngineDecision, EngineReport
from attnctl.render.amounts import bytes_text
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Table


def engine_blocks(names: Sequence[str], report: EngineReport) -> list[Block]:
    """The engine's pick per group, what it rejected, its block sizes, and where it differs."""
    title = f"{report.engine} {report.version}"
    setting = " ".join(f"{name}={value}" for name, value in report.environment.items())
    under = f" with {setting}" if setting else ""
    rows = tuple(_row(n, group) for n, group in zip(names, report.groups, strict=True))
    blocks: list[Block] = [Heading(f"{title} would pick{under}")]
    blocks.append(Table(("layers", "pick", "block", "prefill", "in its order"), rows).compact())
    for name, group in zip(names, report.groups, strict=True):
        blocks += _rejected(name, group, title)
    blocks += _plan(report)
    blocks += [Line(Mark(f"note: {note}", "warn")) for note in _notes(report)]
    if report.arguments:
        command = f"{setting} vllm serve MODEL".strip()
        text = f"to pin it: {command} {' '.join(report.arguments)}"
        blocks.append(Line(text, whole=True))
    return [*blocks, *_differences(names, report)]


def _row(name: str, group: EngineDecision) -> tuple[Cell, ...]:
    pick: Cell = Mark("refuses", "bad") if group.pick is None else Mark(group.pick, "good")
    if group.error is None and group.pick is None:
        pick = Mark("not needed", "dim")
    block = "" if group.block_size is None else str(group.block_size)
    return (name, pick, block, group.mla_prefill or "", ", ".join(group.priority))


def _rejected(name: str, group: EngineDecision, title: str) -> list[Block]:
    blocks: list[Block] = []
    if group.error:
        blocks.append(Line(Mark(f"{name}: {group.error}", "bad")))
    refused = {group.requested: group.forced} if group.requested and group.forced else {}
    rows = tuple(
        (backend if place == 0 else "", reason.code, reason.wanted, reason.found, reason.fix)
        for backend, reasons in {**refused, **group.rejected}.items()
        for place, reason in enumerate(reasons)
    )
    if rows:
        blocks.append(Line(f"{name}: {title} rejects"))
        names = ("rejected", "reason", "wanted", "found", "fix")
        blocks.append(Table(names, rows, indent=2).compact())
    return blocks


def _plan(report: EngineReport) -> list[Block]:
    plan = report.plan
    if plan is None:
        return []
    if plan.error:
        told = {group.error for group in report.groups}
        return [] if plan.error in told else [Line(Mark(f"block sizes: {plan.error}", "bad"))]
    if not plan.state_bytes:
        return []
    padded = plan.mamba_page_size_padded
    padding = f", padded to {bytes_text(padded)}" if padded else ""
    state = f"states of {bytes_text(plan.state_bytes)}{padding}"
    if plan.block_size is None:  # nothing but states: there are no blocks to agree on
        return [Line(state)]
    return [Line(f"block size for the whole model: {plan.block_size} tokens; {state}")]


def _notes(report: EngineReport) -> tuple[str, ...]:
    return tuple(dict.fromkeys([n for g in report.groups for n in g.notes] + [*report.notes]))


def _differences(names: Sequence[str], report: EngineReport) -> list[Block]:
    if not report.differences:
        return [Line(f"{report.engine} and this registry agree on every group")]
    rows = tuple(
        (names[d.group], d.engine or "refuses", d.registry or "none", d.because)
        for d in report.differences
    )
    return [
        Heading(f"where {report.engine} and this registry differ"),
        Table(("layers", report.engine, "attnctl", "because"), rows),
    ]
