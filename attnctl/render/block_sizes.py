"""What one size of the cache's blocks for all layers costs, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.profile.ratio import times_text
from attnctl.render.amounts import count_text
from attnctl.render.demands import titles
from attnctl.selection.report import SelectReport
from attnctl.selection.timed import BlockCost, OneBlock


def block_notes(report: SelectReport) -> Iterator[str]:
    """One note where the groups' own blocks differ; none where they agree."""
    if report.one_block is not None:
        yield said(report.one_block, titles(report))


def said(found: OneBlock, names: Sequence[str]) -> str:
    """What each size costs, in one sentence. names: of the groups."""
    costs = ", ".join(_cost(one, names) for one in found.sizes)
    untimed = {one.untimed for one in found.sizes}
    if len(untimed) == 1 and any(untimed) and not any(one.refused for one in found.sizes):
        costs = f"no size was timed for {_named(untimed.pop(), names)}"
    own = f"blocks of {' and '.join(map(str, found.own))} tokens"
    if found.taken:
        return f"one block size for all layers, {found.best} tokens, in place of {own}: {costs}"
    takes = "" if found.best is None else f" takes {found.best}"
    return f"{own}; serving engines have one for all layers (--block-size same{takes}): {costs}"


def _cost(one: BlockCost, names: Sequence[str]) -> str:
    if one.refused:
        return f"{one.tokens} is served by no backend for {_named(one.refused, names)}"
    if one.untimed:
        return f"{one.tokens} was not timed for {_named(one.untimed, names)}"
    if one.ratio is None:
        return f"{one.tokens} was not timed at points that all groups share"
    most = "at most " if one.plain else ""
    plain = f" (defaults alone were timed for {_named(one.plain, names)})" if one.plain else ""
    points = count_text(one.points, "point")
    return f"{one.tokens} costs {most}{times_text(one.ratio)} the time over {points}{plain}"


def _named(places: Sequence[int], names: Sequence[str]) -> str:
    return " and ".join(names[place] for place in places)
