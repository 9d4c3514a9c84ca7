"""What a screen consists of, before it is known whether a pipe or a terminal will show it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Style = Literal["", "good", "bad", "warn", "dim", "strong"]


class Mark(NamedTuple):
    """Words with a meaning that a terminal may colour."""

    text: str
    style: Style


Cell = str | Mark


class Heading(NamedTuple):
    text: str


class Line(NamedTuple):
    """One line of words; indent in columns."""

    cell: Cell
    indent: int = 0


class Table(NamedTuple):
    """Rows under column names; an empty `columns` draws no header.

    fixed: how many leading columns are never wrapped. spare: the column that goes first where a
    terminal is too narrow.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    indent: int = 0
    fixed: int = 1
    spare: int | None = None

    def without_spare(self) -> Table:
        spare = self.spare
        columns = tuple(name for place, name in enumerate(self.columns) if place != spare)
        rows = (
            tuple(cell for place, cell in enumerate(row) if place != spare) for row in self.rows
        )
        return Table(columns, tuple(rows), self.indent, self.fixed)


Block = Heading | Line | Table
View = tuple[Block, ...]


def text_of(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def style_of(cell: Cell) -> Style:
    return "" if isinstance(cell, str) else cell.style
