"""A profile as one HTML page: no script, nothing fetched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from attnctl.profile.canonical import canonical
from attnctl.profile.page.bars import bars_svg
from attnctl.profile.page.chart import Cell, Chart, Grid, Row, chart_of
from attnctl.profile.page.roofline import Roof, roof_of
from attnctl.profile.page.style import COLOURS, STYLE
from attnctl.profile.page.words import escape
from attnctl.profile.values import Profile, tokens_text
from attnctl.render.profile import gain_text, versions_text
from attnctl.render.profiled import settings_text, time_text

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
LEAST_MIX, MOST_MIX = 16, 58
"""Per cent of a backend's colour in a cell: where nothing is won, and at a lead of DEEPEST."""
DEEPEST = 1.6
OPEN = 48
"""Timings up to which their table is shown without a click."""
READING = (
    "The fastest by sequences B (down) and tokens of context S (across), its time, and how much "
    "longer the next one takes. The deeper the colour, the larger the lead."
)


def page(profile: Profile) -> str:
    """The whole document. Every word of the profile is escaped."""
    written = canonical(profile)
    roof = roof_of(written)
    charts = [chart_of(entry, roof) for entry in written.entries]
    title = f"attnctl profile: {written.name}"
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            f"<header>\n<h1>{escape(title)}</h1>",
            *_facts(written, roof),
            "</header>\n<nav>",
            *_contents(charts),
            "</nav>\n<main>",
            *(line for place, chart in enumerate(charts) for line in _section(place, chart)),
            "</main>\n</body>\n</html>\n",
        )
    )


def _facts(profile: Profile, roof: Roof) -> Iterator[str]:
    bandwidth = f"{roof.bandwidth_gbps:,.0f} GB/s" if roof.bandwidth_gbps else "bandwidth not known"
    compute = f", {roof.gflops / 1e3:,.0f} TFLOP/s" if roof.gflops else ""
    conditions = (f"{name} {_said(value)}" for name, value in profile.conditions.items())
    facts = {
        "device": str(profile.key),
        "versions": versions_text(profile.versions),
        "measured": profile.measured,
        "conditions": ", ".join(conditions),
        "roofline": f"{bandwidth}{compute} ({roof.source})",
    }
    yield "<dl>"
    yield from (f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text)
    yield "</dl>"


def _said(value: int | float | str | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else f"{value:.10g}"


def _contents(charts: Iterable[Chart]) -> Iterator[str]:
    yield "<ul>"
    for place, chart in enumerate(charts):
        yield f'<li><a href="#shape-{place}">{escape(str(chart.entry.shape))}</a></li>'
    yield "</ul>"


def _section(place: int, chart: Chart) -> Iterator[str]:
    colours = {name: at % COLOURS for at, name in enumerate(chart.backends)}
    gain = gain_text(chart.entry).removeprefix(": ")
    yield f'<section id="shape-{place}" aria-labelledby="title-{place}">'
    yield f'<h2 id="title-{place}">{escape(str(chart.entry.shape))}</h2>'
    if gain:
        yield f"<p>The picks are {escape(gain)}.</p>"
    if out := _rejected(chart):
        yield f"<p>Out of the running: {escape(out)}.</p>"
    yield from _legend(colours)
    yield f'<p class="quiet">{READING}</p>\n<div class="side">'
    for grid in chart.grids:
        yield from _map(grid, colours)
    yield '</div>\n<div class="side">'
    for bars in chart.bars:
        yield from bars_svg(bars, colours)
    yield "</div>"
    yield from _figures(chart)
    yield "</section>"


def _rejected(chart: Chart) -> str:
    """ "341 pruned, 12 wrong": settings that could not win, over all points."""
    counts = Counter(one.why for point in chart.entry.points for one in point.rejected)
    return ", ".join(f"{count} {why}" for why, count in sorted(counts.items()))


def _legend(colours: dict[str, int]) -> Iterator[str]:
    yield '<ul class="legend">'
    for name, colour in colours.items():
        yield f'<li style="--own: var(--c{colour})"><i></i>{escape(name)}</li>'
    yield "</ul>"


def _map(grid: Grid, colours: dict[str, int]) -> Iterator[str]:
    yield '<div class="wide"><table class="map">'
    yield f"<caption>{escape(grid.title)}</caption>"
    heads = "".join(f'<th scope="col">{tokens_text(context)}</th>' for context in grid.contexts)
    yield f'<thead><tr><td class="quiet">B \\ S</td>{heads}</tr></thead>\n<tbody>'
    for batch, cells in zip(grid.batches, grid.cells, strict=True):
        row = "".join(_cell(cell, colours) for cell in cells)
        yield f'<tr><th scope="row">{batch}</th>{row}</tr>'
    yield "</tbody></table></div>"


def _cell(cell: Cell | None, colours: dict[str, int]) -> str:
    if cell is None:
        return '<td class="empty">not timed</td>'
    won = min(1.0, max(0.0, (cell.lead - 1) / (DEEPEST - 1)))
    mix = round(LEAST_MIX + won * (MOST_MIX - LEAST_MIX))
    style = f"--own: var(--c{colours[cell.winner]}); --mix: {mix}%"
    title = f"{cell.winner} {cell.settings}".strip()
    lead = f"<small>{_breaking(cell.rival)}: {cell.lead:.2f}x</small>" if cell.rival else ""
    return (
        f'<td class="cell" style="{style}" title="{escape(title)}"><b>{_breaking(cell.winner)}</b>'
        f"<span>{time_text(cell.time_us)}</span>{lead}</td>"
    )


def _breaking(name: str) -> str:
    """A backend's name that may go on after an underscore on the next line."""
    return escape(name).replace("_", "_<wbr>")


def _figures(chart: Chart) -> Iterator[str]:
    timed = len({row.point.place for row in chart.rows})
    opened = " open" if len(chart.rows) <= OPEN else ""
    told = f"All figures: {timed} points, {len(chart.rows)} timings"
    yield f"<details{opened}>\n<summary>{told}</summary>"
    yield '<div class="wide"><table class="figures">'
    names = (
        ("phase", ""),
        ("B", "number"),
        ("S", "number"),
        ("new", "number"),
        ("backend", ""),
        ("settings", ""),
        ("median", "number"),
        ("IQR", "number"),
        ("runs", "number"),
        ("of the roofline", "number"),
        ("its defaults", "number"),
        ("tried", "number"),
    )
    heads = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in names)
    yield f"<thead><tr>{heads}</tr></thead>\n<tbody>"
    kinds = [kind for _, kind in names]
    for row in chart.rows:
        pairs = zip(kinds, _texts(row), strict=True)
        tds = "".join(f'<td class="{kind}">{escape(text)}</td>' for kind, text in pairs)
        yield f'<tr class="picked">{tds}</tr>' if row.picked else f"<tr>{tds}</tr>"
    yield "</tbody></table></div>\n</details>"


def _texts(row: Row) -> tuple[str, ...]:
    point, timing = row.point, row.timing
    mark = " (picked)" if row.picked else ""
    return (
        point.phase,
        str(point.batch),
        tokens_text(point.context),
        tokens_text(point.query),
        f"{timing.backend}{mark}",
        settings_text(timing.kernel, timing.knobs),
        time_text(timing.median_us),
        time_text(timing.iqr_us),
        str(timing.runs),
        "" if row.share is None else f"{row.share:.0%}",
        time_text(timing.default_us),
        str(timing.tried),
    )
