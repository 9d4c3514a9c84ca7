"""Views drawn with Rich on a terminal: wrapped to its width, coloured where colours are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich.box import Box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from attnctl.render.plain import clean
from attnctl.render.view import Block, Cell, Heading, Line, Table, View, style_of, text_of

STYLES = {
    "": "",
    "good": "green",
    "bad": "red",
    "warn": "yellow",
    "dim": "dim",
    "strong": "bold",
}
# only a rule under the header: an answer is read, not admired
# a column of prose is readable from here on
READABLE = 14
# names are not torn; key paths and files, which are longer, are where nothing else helps
LONGEST_WORD = 24
GAP = 2
RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def drawn(view: View, width: int, colour: bool) -> str:
    """The view as text for a terminal of this width; without colour it holds no escapes at all."""
    target = StringIO()
    console = Console(
        file=target,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        emoji=False,
        markup=False,
        highlight=False,
    )
    for place, block in enumerate(view):
        _draw(console, block, first=place == 0)
    return "\n".join(line.rstrip() for line in target.getvalue().split("\n"))


def _draw(console: Console, block: Block, first: bool) -> None:
    if isinstance(block, Heading):
        console.print(Text(("" if first else "\n") + clean(block.text), style="bold"))
    elif isinstance(block, Line):
        _draw_line(console, block)
    elif block.rows:
        drawn = _fitting(block.compact(), console.width - block.indent)
        console.print(Padding(drawn, (0, 0, 0, block.indent), expand=False))


def _draw_line(console: Console, line: Line) -> None:
    words = _words(line.cell)
    if line.whole:
        console.print(Text(" " * line.indent) + words, soft_wrap=True)
        return
    drawn: Text | RichTable = words
    if line.hang:
        drawn = RichTable.grid()
        drawn.add_column(width=line.hang, no_wrap=True)
        drawn.add_column(overflow="fold")
        drawn.add_row(words[: line.hang], words[line.hang :])
    console.print(Padding(drawn, (0, 0, 0, line.indent)))


def _fitting(table: Table, room: int) -> RichTable | Group:
    while table.spare and not _widths(table, room):
        table = table.without_spare()
    widths = _widths(table, room)
    return _table(table, widths) if widths else _stacked(table)


def _widths(table: Table, room: int) -> list[int]:
    """A width for each column, no word torn; empty where the table does not fit in the room.

    Every column starts at the least that it can be read in; what is left goes round in turn.
    """
    least, whole = _least_and_whole(table)
    left = room - sum(least) - GAP * (len(least) - 1)
    if left < 0:
        return []
    widths = list(least)
    while left and widths != whole:
        for place, wanted in enumerate(whole):
            if left and widths[place] < wanted:
                widths[place] += 1
                left -= 1
    return widths


def _least_and_whole(table: Table) -> tuple[list[int], list[int]]:
    """What each column needs: all of a fixed one, else its longest word; and what it would like."""
    rows = [table.columns, *table.rows] if table.columns else [*table.rows]
    least, whole = [], []
    for place, column in enumerate(zip(*rows, strict=True)):
        texts = [clean(text_of(cell)) for cell in column]
        whole.append(max(map(len, texts)))
        words = [len(word) for text in texts for word in text.split() if len(word) <= LONGEST_WORD]
        least.append(whole[-1] if place < table.fixed else max((min(whole[-1], READABLE), *words)))
    return least, whole


def _table(table: Table, widths: list[int]) -> RichTable:
    drawn = RichTable(
        box=RULE if table.columns else None,
        show_header=bool(table.columns),
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1 if table.columns else GAP, 0, 0),
        header_style="dim",
    )
    for place, width in enumerate(widths):
        name = table.columns[place] if table.columns else ""
        drawn.add_column(name, width=width, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_words(cell) for cell in row))
    return drawn


def _stacked(table: Table) -> RichTable | Group:
    """Each row as a block of its own: its fixed cells, then one line per other column."""
    lead = max(1, min(table.fixed, 2))
    if any(len(text_of(row[0])) > LONGEST_WORD for row in table.rows):
        # beside a long name all else would stand far to the right
        width = max(map(len, table.columns[1:]), default=0)
        return Group(*(one for row in table.rows for one in _under_its_name(table, row, width)))
    grid = RichTable.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    if table.columns:
        grid.add_row(*(Text(name, style="dim") for name in _joined(table.columns, lead)))
    for row in table.rows:
        grid.add_row(_words(row[0]), Text(" ").join(_words(cell) for cell in row[1:lead]))
        _add_fields(grid, table, row, lead)
    return grid


def _joined(names: tuple[str, ...], lead: int) -> tuple[str, str]:
    return names[0], " ".join(names[1:lead])


def _under_its_name(table: Table, row: tuple[Cell, ...], width: int) -> Iterator[Text | RichTable]:
    grid = RichTable.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True, width=width + 2)
    grid.add_column(overflow="fold")
    _add_fields(grid, table, row, 1)
    yield _words(row[0])
    yield grid


def _add_fields(grid: RichTable, table: Table, row: tuple[Cell, ...], lead: int) -> None:
    names = table.columns or ("",) * len(row)
    for name, cell in list(zip(names, row, strict=True))[lead:]:
        if text_of(cell):
            grid.add_row(Text(f"  {name}", style="dim"), _words(cell))


def _words(cell: Cell) -> Text:
    return Text(clean(text_of(cell)), style=STYLES[style_of(cell)])
