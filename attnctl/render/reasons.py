"""Why the others were not picked: reasons per candidate, and every finding of one of them."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.findings import Finding, Verdict
from attnctl.render.demands import forms_text, titles
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Style, Table, View
from attnctl.selection.report import CandidateReport, GroupReport, SelectReport

REASONS = ("rejected", "reason", "wanted", "found", "fix")
FINDINGS = ("verdict", "rule", "wanted", "found", "fix")


def answers(report: SelectReport) -> View:
    """One section per answer; groups that were answered alike share theirs."""
    sections: dict[View, list[str]] = {}
    for name, group in zip(titles(report), report.groups, strict=True):
        if group.candidates:
            sections.setdefault(tuple(_section(group)), []).append(name)
    blocks: list[Block] = []
    for section, names in sections.items():
        blocks += [Heading("; ".join(names)), *section]
    return (*blocks, *_elsewhere(report))


def _section(group: GroupReport) -> Iterator[Block]:
    behind = [c.name for c in group.candidates if c.ok and c.name != group.pick]
    yield Line(f"{'next in order' if group.pick else 'eligible'}: {', '.join(behind) or 'none'}")
    if group.latent is not None:
        yield Line(forms_text(group.latent, group.layer))
    rejected = [candidate for candidate in group.candidates if _is_near(candidate, group)]
    if rejected:
        yield Table(REASONS, tuple(row for one in rejected for row in _reasons(one)), fixed=2)
    yield from _what_if(group)


def _elsewhere(report: SelectReport) -> Iterator[Block]:
    """One line for the backends that serve none of these layers on any machine of this platform."""
    near: dict[str, bool] = {}
    for group in report.groups:
        for one in group.candidates:
            near[one.name] = near.get(one.name, False) or one.ok or _is_near(one, group)
    away = [name for name, shown in near.items() if not shown]
    if away:
        names = ", ".join(away)
        yield Line("")
        yield Line(Mark(f"for other layers or platforms (--explain NAME): {names}", "dim"))


def _is_near(candidate: CandidateReport, group: GroupReport) -> bool:
    """True where its reasons are shown: it could serve such layers here, or it was asked for."""
    if candidate.ok:
        return False
    return candidate.name == group.requested or not candidate.elsewhere


def _reasons(candidate: CandidateReport) -> Iterator[tuple[Cell, ...]]:
    for place, finding in enumerate(candidate.reasons):
        name = candidate.name if place == 0 else ""
        yield (name, finding.code, finding.wanted, _found(finding), finding.fix)


def _found(finding: Finding) -> Mark:
    source = f" [{finding.source}]" if finding.source else ""
    if finding.verdict is Verdict.UNKNOWN:
        return Mark(f"unknown: {finding.found}{source}", "warn")
    return Mark(f"{finding.found}{source}", "" if finding.met else "bad")


def _what_if(group: GroupReport) -> Iterator[Block]:
    if group.what_if is None:
        return
    changes: dict[str | None, list[str]] = {}
    for flip in group.what_if:
        changes.setdefault(flip.after, []).append(flip.change)
    if not changes:
        yield Line("what if: no single change gives these layers another backend")
        return
    lost = changes.pop(None, [])
    if changes:
        rows = tuple((Mark(name or "", "good"), " | ".join(a)) for name, a in changes.items())
        yield Table(("what if", "any one of these changes gives it"), rows)
    if lost:
        row = (Mark("none", "bad"), " | ".join(lost))
        yield Table(("what if", "any one of these changes leaves no backend"), (row,))


def every_finding(title: str, group: GroupReport, name: str) -> View:
    """All that was asked of one backend for one group, met or not."""
    candidate = next((c for c in group.candidates if c.name == name), None)
    if candidate is None:
        return ()
    answer = "eligible" if candidate.ok else "rejected"
    answer = "the pick" if candidate.name == group.pick else answer
    place = "no place" if candidate.place is None else f"place {candidate.place}"
    rows = tuple(
        (_verdict(finding), finding.code, finding.wanted, _found(finding), finding.fix)
        for finding in candidate.findings
    )
    return (
        Heading(f"{name} for {title}: {answer}; {place} in this platform's order"),
        Line(f"its kernel: {candidate.kernel}"),
        Table(FINDINGS, rows, fixed=2),
    )


def _verdict(finding: Finding) -> Mark:
    styles: dict[Verdict, Style] = {Verdict.MET: "good", Verdict.UNMET: "bad"}
    return Mark(finding.verdict.value, styles.get(finding.verdict, "warn"))
