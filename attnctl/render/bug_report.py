"""What is in a bug report's archive, for the eyes of whoever is about to attach it."""

from __future__ import annotations

from attnctl.bug_report.archive import BugReport
from attnctl.render.view import Block, Line, Mark, Table, View


def bug_report_view(path: str, report: BugReport) -> View:
    """Its files with their sizes, what could not be had, and where it was written."""
    rows = tuple((part.name, f"{len(part.data):,}", part.what) for part in report.parts)
    view: list[Block] = [Table(("file", "bytes", "what"), rows)]
    view += [Line(Mark(f"left out: {one.name}: {one.error}", "warn")) for one in report.left_out]
    view.append(
        Line(
            f"{path}: paths, names of people and hosts, serial numbers and tokens are struck out; "
            "it is text in a zip file, so look at it before you attach it"
        )
    )
    return tuple(view)
