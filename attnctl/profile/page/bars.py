"""Bars of each rival against the roofline, as inline SVG."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.profile.page.chart import Bar, Bars
from attnctl.profile.page.words import escape

LABEL, LENGTH, TAIL = 190, 300, 150
ROW, THICK, HEAD = 26, 14, 24
FULL = 1.1
"""The share at the right end: a kernel that reuses what lies in a cache may pass the roofline."""


def bars_svg(bars: Bars, colours: dict[str, int]) -> Iterator[str]:
    """A heading and one drawing; each bar's figures stand beside it as text."""
    width, height = LABEL + LENGTH + TAIL, HEAD + ROW * len(bars.bars) + 6
    roof = LABEL + LENGTH / FULL
    said = "; ".join(f"{bar.backend} {bar.share:.0%}" for bar in bars.bars)
    title = f"{bars.phase}: share of {bars.against}"
    yield f"<figure>\n<h3>{escape(title)}</h3>"
    yield (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(f"{title}: {said}")}">'
    )
    for place, bar in enumerate(bars.bars):
        yield from _bar(bar, HEAD + ROW * place, colours[bar.backend])
    yield f'<line class="roof" x1="{roof:.1f}" x2="{roof:.1f}" y1="16" y2="{height - 4}"/>'
    yield f'<text class="quiet" x="{roof:.1f}" y="11" text-anchor="middle">100 %</text>'
    yield "</svg>"
    yield (
        '<p class="quiet">Geometric mean over its points; the line spans its worst and best.</p>'
        "\n</figure>"
    )


def _bar(bar: Bar, top: float, colour: int) -> Iterator[str]:
    middle = top + THICK / 2 + 2
    yield f'<text x="{LABEL - 8}" y="{middle + 4}" text-anchor="end">{escape(bar.backend)}</text>'
    box = f'x="{LABEL}" y="{top + 2}" height="{THICK}" rx="3"'
    yield f'<rect class="track" {box} width="{LENGTH}"/>'
    own = f'style="--own: var(--c{colour})"'
    yield f'<rect class="bar" {own} {box} width="{_length(bar.share):.1f}"/>'
    low, high = LABEL + _length(bar.low), LABEL + _length(bar.high)
    yield f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'
    points = f"{bar.points} point{'s' if bar.points != 1 else ''}"
    yield f'<text x="{LABEL + LENGTH + 8}" y="{middle + 4}">{bar.share:.0%}, {points}</text>'


def _length(share: float) -> float:
    return min(share, FULL) / FULL * LENGTH
