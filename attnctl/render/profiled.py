"""What the screen of `attnctl select` says of profiles: which were used and why, and the maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attnctl.decision import NOT_TIMED
from attnctl.findings import Finding
from attnctl.profile.knob_text import knob_text
from attnctl.profile.match import NOT_KNOWN
from attnctl.render.amounts import count_text
from attnctl.render.demands import titles
from attnctl.render.view import Block, Heading, Line, Table
from attnctl.selection.briefs import ProfileBrief
from attnctl.selection.report import GroupReport, SelectReport
from attnctl.selection.timed import Mapped, Span

ORIGINS = {
    "option": "--profile",
    "environment": "ATTNCTL_PROFILE",
    "user": "your own",
    "bundled": "bundled",
}


def profile_facts(report: SelectReport) -> Iterator[tuple[str, str]]:
    """One line per profile that fits or was named, and what stands behind it."""
    for brief in report.profiles:
        if brief.status in ("valid", "stale") or brief.origin in ("option", "environment"):
            text = f"{brief.name}, which decided {_decided(report, brief)}"
            yield text, f"{brief.status}, {ORIGINS[brief.origin]}"


def _decided(report: SelectReport, brief: ProfileBrief) -> str:
    """How many of the answers rest on the profile's timings."""
    wanted = [group for group in report.groups if group.kind != "none"]
    measured = [
        group
        for group in wanted
        if group.winner is not None
        and group.winner.evidence == "measured"
        and group.timed_by == brief.name
    ]
    return f"{len(measured)} of {count_text(len(wanted), 'group')} of layers"


def profile_notes(report: SelectReport) -> Iterator[str]:
    """What a reader must know of the profiles, each once."""
    for brief in report.profiles:
        yield from _brief_notes(brief)
    untimed = [
        name
        for name, group in zip(titles(report), report.groups, strict=True)
        if NOT_TIMED in group.notes
    ]
    if untimed:
        yield f"{NOT_TIMED}: {'; '.join(untimed)}"


def _brief_notes(brief: ProfileBrief) -> Iterator[str]:
    name = f"the profile {brief.name}"
    unmet = [finding for finding in brief.findings if not finding.met]
    if brief.status == "damaged":
        yield f"{name} is not used: {brief.error}"
    elif brief.status == "foreign" and brief.origin in ("user", "bundled"):
        yield f"no profile is of this device; the nearest is {brief.name}: {_differ(unmet)}"
    elif brief.status == "foreign":
        yield f"{name} is foreign and not used: {_differ(unmet)}"
    elif brief.status == "stale":
        stale = [finding for finding in unmet if finding.code == "profile_version"]
        yield f"{name} is stale, and used all the same: {_differ(stale)}"
    if brief.status in ("valid", "stale"):
        for finding in unmet:
            if finding.code not in ("profile_version", "profile_key"):
                yield f"{name}: {_differ([finding])}"
    yield from brief.dead
    for bad in brief.bad_entries:
        yield f"{name} has an entry that does not read: {bad}"


def _differ(findings: Sequence[Finding]) -> str:
    found = [finding.found for finding in findings]
    measured = f"it was measured with {', '.join(finding.wanted for finding in findings)}"
    if set(found) == {NOT_KNOWN}:
        return f"{measured}; of what is here that is not known"
    return f"{measured}, here is {', '.join(found)}"


def maps(report: SelectReport) -> Iterator[Block]:
    """The picks at every timed point, and the spans of an axis, where they were asked for."""
    named = list(zip(titles(report), report.groups, strict=True))
    for name, group in named:
        if group.map is not None and group.kind != "none":
            yield Heading(f"what the timings pick, point by point: {name}")
            yield _map(group.map) if group.map else Line(NOT_TIMED)
    for name, group in named:
        if group.sweep is not None and group.kind != "none":
            yield Heading(f"where the choice changes: {name}")
            yield from _sweep(group)


def _map(mapped: Iterable[Mapped]) -> Table:
    rows = tuple(
        (
            one.phase,
            str(one.batch),
            str(one.context),
            str(one.query),
            one.backend,
            settings_text(one.kernel, one.knobs),
            time_text(one.time_us),
            f"{one.because} [{one.evidence}]",
        )
        for one in mapped
    )
    columns = ("phase", "B", "S", "new", "pick", "settings", "time", "why")
    return Table(columns, rows, fixed=5)


def _sweep(group: GroupReport) -> Iterator[Block]:
    spans: tuple[Span, ...] = group.sweep or ()
    if not spans:
        yield Line("the layers have no such size to vary")
        return
    rows = tuple(
        (
            f"{span.first} to {span.last}" if span.last > span.first else str(span.first),
            span.backend or "none",
            settings_text(span.kernel, span.knobs) if span.axis != "head_size" else "",
            f"{span.because} [{span.evidence}]" if span.evidence else span.because,
        )
        for span in spans
    )
    yield Table((spans[0].axis, "pick", "settings", "why"), rows)


def settings_text(kernel: str, knobs: dict[str, int | str | bool]) -> str:
    """The rival kernel and the knobs of a pick; "defaults" where it has neither."""
    words = [knob_text(name, value) for name, value in knobs.items()]
    return " ".join(([kernel] if kernel else []) + words) or "defaults"


def time_text(time_us: float | None) -> str:
    """A time as people read it: 12.3 us, 4.56 ms."""
    if time_us is None:
        return ""
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3g} s"
    return f"{time_us / 1e3:.3g} ms" if time_us >= 1e3 else f"{time_us:.3g} us"
