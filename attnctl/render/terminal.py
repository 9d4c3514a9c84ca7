"""Views drawn with Rich on a terminal: wrapped to its width, coloured where colours are wanted."""

from __future__ import annotations

from io import StringIO

from rich.box import Box
from rich.console import Console
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
        console.print(Padding(_words(block.cell), (0, 0, 0, block.indent)))
    elif block.rows:
        drawn = _fitting(block.compact(), console.width - block.indent)
        console.print(Padding(drawn, (0, 0, 0, block.indent), expand=False))


def _fitting(table: Table, room: int) -> RichTable:
    if table.spare is not None and narrowest(table) > room:
        table = table.without_spare()
    return _table(table) if narrowest(table) <= room else _stacked(table)


def narrowest(table: Table) -> int:
    """Columns of a terminal below which this table is no longer read as one."""
    rows = [table.columns, *table.rows] if table.columns else [*table.rows]
    widths = [max(len(text_of(cell)) for cell in column) for column in zip(*rows, strict=True)]
    wrapped = [min(width, READABLE) for width in widths[table.fixed :]]
    return sum((*widths[: table.fixed], *wrapped)) + GAP * (len(widths) - 1)


def _stacked(table: Table) -> RichTable:
    """Each row as a block of its own: its fixed cells, then one line per other column."""
    grid = RichTable.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in table.rows:
        lead = max(1, min(table.fixed, 2))
        grid.add_row(_words(row[0]), Text(" ").join(_words(cell) for cell in row[1:lead]))
        for name, cell in list(zip(table.columns or [""] * len(row), row, strict=True))[lead:]:
            if text_of(cell):
                grid.add_row(Text(f"  {name}", style="dim"), _words(cell))
    return grid


def _table(table: Table) -> RichTable:
    drawn = RichTable(
        box=RULE if table.columns else None,
        show_header=bool(table.columns),
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1 if table.columns else GAP, 0, 0),
        header_style="dim",
    )
    for place, name in enumerate(table.columns or ("",) * len(table.rows[0])):
        drawn.add_column(name, no_wrap=place < table.fixed, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_words(cell) for cell in row))
    return drawn


def _words(cell: Cell) -> Text:
    return Text(clean(text_of(cell)), style=STYLES[style_of(cell)])
