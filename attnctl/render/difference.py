"""The screen of `attnctl probe --diff`."""

from __future__ import annotations

from attnctl.machines.differences import Difference
from attnctl.render.amounts import count_text
from attnctl.render.view import Line, Mark, Table, View


def difference_view(old: str, differences: tuple[Difference, ...]) -> View:
    """One row per fact that differs."""
    if not differences:
        return (Line(Mark(f"nothing that a selection depends on differs from {old}", "good")),)
    rows = tuple((one.path, _value(one.old), _value(one.new)) for one in differences)
    count = count_text(len(rows), "fact") + " that a selection may depend on"
    verb = "differs" if len(rows) == 1 else "differ"
    return (
        Table(("fact", "old", "new"), rows, fixed=0),
        Line(Mark(f"{count} {verb} from {old}", "warn")),
    )


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not known" if value is None else str(value)
