"""Draws what a command shows on a terminal as a picture, for light pages and for dark ones.

    python tools/screens.py            writes docs/screen-light.svg and docs/screen-dark.svg

The text is the program's own output with its colours; nothing of it is written by hand.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from html import escape
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs"
COMMAND = "attnctl select --model examples/llama-3.1-8b.json --machine l4 --kv-cache-dtype fp8"
WIDTH = 100
# of a cell, a margin and the type, in pixels
CELL, LINE, MARGIN, SIZE = 8.4, 18, 14, 14
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


class Palette(NamedTuple):
    page: str
    edge: str
    plain: str
    dim: str
    red: str
    green: str
    yellow: str


PALETTES = {
    "light": Palette("#ffffff", "#d0d7de", "#1f2328", "#656d76", "#b3261e", "#1a7f37", "#8a6100"),
    "dark": Palette("#0d1117", "#30363d", "#e6edf3", "#8b949e", "#ff7b72", "#56d364", "#e3b341"),
}


def shown(command: str) -> Text:
    """What the command shows on a terminal of WIDTH columns, colours included."""
    from attnctl.cli import run
    from attnctl.render.output import Output

    stream = io.StringIO()
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        run(shlex.split(command)[1:], Output(stream, terminal=True, width=WIDTH, colour=True))
    finally:
        os.chdir(before)
    return Text.from_ansi(f"$ {command}\n{stream.getvalue()}".rstrip("\n"))


def picture(text: Text, palette: Palette) -> str:
    """The text as SVG, a cell for each character, so that columns stay in line in any font."""
    console = Console(width=WIDTH + 1, color_system="standard")
    lines = text.split("\n")
    body = []
    for row, line in enumerate(lines):
        column = 0
        for segment in line.render(console, end=""):
            # what stands between two words by more than a space is the next cell of a table
            for words in re.finditer(r"\S+(?: \S+)*", segment.text):
                body.append(_words(words[0], segment, row, column + words.start(), palette))
            column += len(segment.text)
    columns = max(len(line) for line in lines)
    width = round(columns * CELL + 2 * MARGIN)
    height = len(lines) * LINE + 2 * MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="{FONT}" font-size="{SIZE}" role="img">',
            f"<title>{escape(lines[0].plain)}</title>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" '
            f'fill="{palette.page}" stroke="{palette.edge}"/>',
            *body,
            "</svg>\n",
        )
    )


def _words(words: str, segment: Segment, row: int, column: int, palette: Palette) -> str:
    style = segment.style
    number = style.color.number if style and style.color else None
    dim = palette.dim if style and style.dim else palette.plain
    fill = {1: palette.red, 2: palette.green, 3: palette.yellow}.get(number or 0, dim)
    weight = ' font-weight="bold"' if style and style.bold else ""
    x, y = MARGIN + column * CELL, MARGIN + row * LINE + SIZE
    return (
        f'<text x="{x:.1f}" y="{y}" textLength="{len(words) * CELL:.1f}" fill="{fill}"{weight}>'
        f"{escape(words)}</text>"
    )


def pictures() -> dict[str, str]:
    """File name -> SVG."""
    text = shown(COMMAND)
    return {f"screen-{name}.svg": picture(text, palette) for name, palette in PALETTES.items()}


if __name__ == "__main__":
    for file, svg in pictures().items():
        (FOLDER / file).write_text(svg, "utf-8")
