"""The screen of `attnctl profile show FILE --rejected`: what could not win, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attnctl.profile.values import Entry, Point, Rejected
from attnctl.render.profiled import settings_text
from attnctl.render.view import Block, Heading, Line, Mark, Style, Table, View

COLUMNS = ("backend", "why", "settings", "points", "the first of them")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def rejected_view(entries: Iterable[Entry]) -> View:
    """Per layer shape, settings that were left out for one reason together in a row."""
    blocks: list[Block] = []
    for entry in entries:
        blocks.append(Heading(str(entry.shape)))
        rows = tuple(_rows(entry))
        if rows:
            blocks.append(Table(COLUMNS, rows, fixed=2))
        else:
            blocks.append(Line(Mark("nothing was rejected", "dim"), 2))
    return tuple(blocks)


def _rows(entry: Entry) -> Iterator[tuple[str | Mark, ...]]:
    kinds: dict[tuple[str, str, str], list[tuple[Point, Rejected]]] = {}
    for point in entry.points:
        for one in point.rejected:
            # details that differ in their figures alone are of one kind
            key = (
                one.backend,
                one.why,
                _NUMBER.sub("#", one.detail).replace("settings", "setting"),
            )
            kinds.setdefault(key, []).append((point, one))
    for (backend, why, _), found in sorted(kinds.items(), key=lambda item: item[0]):
        settings = {str(sorted(one.knobs.items())) + one.kernel for _, one in found}
        points = {str(point) for point, _ in found}
        first_at, first = found[0]
        style: Style = "dim" if why == "pruned" else "bad"
        # what the budget left no time for has no setting of its own
        named = first.kernel or first.knobs or why != "pruned"
        which = f"{settings_text(first.kernel, first.knobs)} at " if named else ""
        text = f"{which}{first_at}: {first.detail}"
        yield backend, Mark(why, style), str(len(settings)), str(len(points)), text
