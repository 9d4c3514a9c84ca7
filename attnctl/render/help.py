"""A command's help as wide as the terminal, also where that is a narrow one."""

from __future__ import annotations

from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

USUAL = 80
NARROWEST = 32
FIRST_COLUMN = 10
LEAST = 50
"""Columns below which the option parser's own formatter does not go unless it is told to."""


def help_text(context: Any) -> str:
    """The help of a command's context, no line of it wider than the terminal."""
    columns = max(NARROWEST, get_terminal_size().columns)
    if columns - 2 < LEAST:
        context.terminal_width = columns - 2
        context.formatter_class = _narrow(context.formatter_class)
    text: str = context.get_help()
    if columns >= USUAL:
        return text
    return "\n".join(part for line in text.split("\n") for part in _parts(line, columns))


def _narrow(usual: Any) -> Any:
    """The formatter with what an option means below its name, which leaves no room beside it."""

    class Narrow(usual):  # type: ignore[misc]
        def write_dl(self, rows: Any, col_max: int = FIRST_COLUMN, col_spacing: int = 2) -> None:
            super().write_dl(rows, FIRST_COLUMN, col_spacing)

    return Narrow


def _parts(line: str, columns: int) -> list[str]:
    """An example or a table's row, which no formatter breaks, with what follows indented."""
    if len(line) <= columns:
        return [line]
    indent = len(line) - len(line.lstrip())
    return wrap(
        line,
        columns,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
