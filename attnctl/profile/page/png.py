"""The same picture by matplotlib, for places that take no page."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from attnctl.documents.files import write_whole
from attnctl.exits import InputError
from attnctl.profile.canonical import canonical
from attnctl.profile.page.chart import Bars, Chart, Grid, chart_of
from attnctl.profile.page.roofline import roof_of
from attnctl.profile.values import Profile, tokens_text
from attnctl.render.profiled import time_text

# the light scheme of the page
COLOURS = (
    *("#0a67b8", "#c2570c", "#0d7a58", "#a23a86"),
    *("#8a6d00", "#2b8fa6", "#b3261e", "#5b5bd6"),
)
DPI = 110


def write_png(profile: Profile, path: str) -> None:
    """Draws one row of panels per layer shape. InputError: there is no matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "--png: matplotlib is not installed: pip install 'attnctl[report]', or take -o FILE"
        ) from error
    written = canonical(profile)
    roof = roof_of(written)
    charts = [chart_of(entry, roof) for entry in written.entries]
    if not charts:
        raise InputError(f"{written.name}: it holds no timings to draw")
    columns = max(len(chart.grids) + len(chart.bars) for chart in charts)
    figure: Any = Figure(figsize=(6 * columns, 4 * len(charts)), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    figure.suptitle(f"attnctl profile: {written.name}, {written.key}, {written.measured}")
    rows = figure.subfigures(len(charts), 1, squeeze=False)
    for (row,), chart in zip(rows, charts, strict=True):
        _draw(row, chart, columns)
    target = BytesIO()
    figure.savefig(target, format="png")
    write_whole(path, target.getvalue())


def _draw(row: Any, chart: Chart, columns: int) -> None:
    row.suptitle(str(chart.entry.shape), fontsize="medium")
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(chart.backends)}
    panels = row.subplots(1, columns, squeeze=False)[0]
    drawn: list[Grid | Bars] = [*chart.grids, *chart.bars]
    for panel, what in zip(panels, drawn, strict=False):
        if isinstance(what, Grid):
            _grid(panel, what, colours)
        else:
            _bars(panel, what, colours)
    for panel in panels[len(drawn) :]:
        panel.axis("off")


def _grid(panel: Any, grid: Grid, colours: dict[str, str]) -> None:
    for y, cells in enumerate(grid.cells):
        for x, cell in enumerate(cells):
            if cell is None:
                continue
            panel.add_patch(_square(x, y, colours[cell.winner]))
            text = f"{cell.winner}\n{time_text(cell.time_us)}"
            panel.text(x, y, text, ha="center", va="center", fontsize=6, color="white")
    panel.set_xlim(-0.5, len(grid.contexts) - 0.5)
    panel.set_ylim(len(grid.batches) - 0.5, -0.5)
    panel.set_xticks(range(len(grid.contexts)), [tokens_text(s) for s in grid.contexts])
    panel.set_yticks(range(len(grid.batches)), [str(b) for b in grid.batches])
    panel.set_xlabel("context")
    panel.set_ylabel("sequences")
    panel.set_title(grid.title, fontsize="small")


def _square(x: int, y: int, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, color=colour)


def _bars(panel: Any, bars: Bars, colours: dict[str, str]) -> None:
    names = [bar.backend for bar in bars.bars]
    shares = [bar.share for bar in bars.bars]
    panel.barh(names, shares, color=[colours[name] for name in names])
    low = [bar.share - bar.low for bar in bars.bars]
    high = [bar.high - bar.share for bar in bars.bars]
    panel.errorbar(shares, names, xerr=(low, high), fmt="none", ecolor="black", capsize=2)
    panel.axvline(1.0, color="black", linestyle="--", linewidth=1)
    panel.invert_yaxis()
    panel.set_title(f"{bars.phase}: share of {bars.against}", fontsize="small")
