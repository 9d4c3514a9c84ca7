"""The screen of smoke's self-test: a line per planted fault, and the sum."""

from __future__ import annotations

from attnctl.render.view import Line, Mark, Style, Table, View
from attnctl.selftest.run import SelfTest


def self_test_view(found: SelfTest) -> View:
    rows = tuple(
        (
            Mark("caught", "good") if one.caught else Mark("missed", "bad"),
            one.name,
            one.what,
            one.by,
        )
        for one in found.faults
    )
    total = len(found.faults)
    style: Style = "good" if found.caught == total else "bad"
    verdict = Mark(f"{found.caught} of {total} planted faults were caught", style)
    return (Table(("", "fault", "what is wrong", "judged"), rows, fixed=2), Line(verdict))
