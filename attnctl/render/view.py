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
    """One line of words; indent in columns.

    hang: how many columns its label takes, under which a terminal writes nothing more. whole: it is
    there to be pasted, so that a terminal must not break it.
    """

    cell: Cell
    indent: int = 0
    hang: int = 0
    whole: bool = False


class Table(NamedTuple):
    """Rows under column names; an empty `columns` draws no header.

    fixed: how many leading columns are never wrapped. spare: the columns that go where a terminal
    is too narrow, one after the other.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    indent: int = 0
    fixed: int = 1
    spare: tuple[int, ...] = ()

    def compact(self) -> Table:
        """The table less its columns that hold nothing."""
        return self._only({p for p in range(self._width) if any(text_of(r[p]) for r in self.rows)})

    def without_spare(self) -> Table:
        """The table less the column that a narrow terminal can do without first."""
        return self._only({place for place in range(self._width) if place != self.spare[0]})

    @property
    def _width(self) -> int:
        return len(self.rows[0]) if self.rows else len(self.columns)

    def _only(self, kept: set[int]) -> Table:
        columns = tuple(name for place, name in enumerate(self.columns) if place in kept)
        rows = tuple(
            tuple(cell for place, cell in enumerate(row) if place in kept) for row in self.rows
        )
        fixed = sum(place in kept for place in range(self.fixed))
        spare = tuple(sum(k < place for k in kept) for place in self.spare if place in kept)
        return Table(columns, rows, self.indent, fixed, spare)


Block = Heading | Line | Table
View = tuple[Block, ...]


def text_of(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def style_of(cell: Cell) -> Style:
    return "" if isinstance(cell, str) else cell.style
