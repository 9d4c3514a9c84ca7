"""Views as text for pipes and files: aligned columns, nothing cut, no control characters."""

from __future__ import annotations

from attnctl.render.view import Block, Heading, Line, Table, View, text_of

GAP = "  "


def plain(view: View) -> str:
    """The view as lines, each ended; a blank line before each heading but the first."""
    lines: list[str] = []
    for block in view:
        lines += _lines(block, first=not lines)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _lines(block: Block, first: bool) -> list[str]:
    if isinstance(block, Heading):
        return [clean(block.text)] if first else ["", clean(block.text)]
    if isinstance(block, Line):
        return [" " * block.indent + clean(text_of(block.cell))]
    return _table(block)


def _table(wide: Table) -> list[str]:
    table = wide.compact()
    rows = [[clean(text_of(cell)) for cell in row] for row in table.rows]
    if table.columns:
        rows.insert(0, list(table.columns))
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pad = " " * table.indent
    return [pad + GAP.join(map(str.ljust, row, widths)) for row in rows]


def clean(text: str) -> str:
    """The text on one line, without characters that would move a terminal's cursor.

    Names of models, machines and plug-ins come from files: they must not be able to send escapes.
    """
    return "".join(character if character.isprintable() else " " for character in text)
