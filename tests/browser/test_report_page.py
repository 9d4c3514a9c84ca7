"""The report of a profile in a real browser: every cell is there, legible in light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnctl.profile.canonical import canonical
from attnctl.profile.page.html import page
from attnctl.profile.values import Profile
from tests.browser.looking import look, picture
from tests.profile.factory import GRID, profile

DOCUMENT = profile("llama-3.1-8b", "gpt-oss-20b", "deepseek-v3", "qwen3-next-80b-a3b")
LEGIBLE = 4.5
"""The least contrast of small text, by WCAG 2.2."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(DOCUMENT), "utf-8")
    return path


def luminance(colour: list[int]) -> float:
    """The relative luminance of an sRGB colour."""
    channels = [part / 255 for part in colour[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: list[int], other: list[int]) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def winners(document: Profile) -> list[str]:
    """The picks in the order of the page: per shape and grid, by batch and context."""
    return sorted(p.pick for e in canonical(document).entries for p in e.points)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_point_is_a_cell_that_can_be_read(report: Path, scheme: Any) -> None:
    """Each has a size, its winner's name and time, and ink that stands out from its paper."""
    found = look(report, scheme)
    cells = found["cells"]
    assert len(cells) == 6 * len(GRID)
    names = sorted(cell["text"].split("\n")[0].strip() for cell in cells)
    assert names == winners(DOCUMENT)
    for cell in cells:
        assert cell["width"] >= 80, cell
        assert cell["height"] >= 30, cell
        assert cell["text"].count("us") + cell["text"].count("ms") >= 1, cell
        assert contrast(cell["ink"], cell["paper"]) >= LEGIBLE, cell
    assert len({tuple(cell["paper"]) for cell in cells}) > 10
    assert len({(cell["left"], cell["top"]) for cell in cells}) == len(cells)


def test_light_and_dark_are_two_pages(report: Path) -> None:
    """Dark ink on light paper, and the other way round."""
    light, dark = look(report, "light")["page"], look(report, "dark")["page"]
    assert luminance(light["ink"]) < 0.1 < 0.8 < luminance(light["paper"])
    assert luminance(dark["paper"]) < 0.1 < 0.7 < luminance(dark["ink"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_rival_has_a_bar_in_its_colour(report: Path, scheme: Any) -> None:
    """As long as its share of the roofline, and told from the ground it stands on."""
    found = look(report, scheme)
    backends = sum(len(entry.order) for entry in DOCUMENT.entries)
    assert len(found["bars"]) == 2 * backends
    legend = {tuple(mark["paper"]) for mark in found["legend"]}
    for bar in found["bars"]:
        assert bar["width"] > 0
        assert tuple(bar["fill"]) in legend
    assert len({round(bar["width"]) for bar in found["bars"]}) > 5
    assert found["rows"] == sum(len(p.timings) for e in DOCUMENT.entries for p in e.points)


@pytest.mark.parametrize("width", [500, 1200])
def test_the_page_is_no_wider_than_its_window(report: Path, width: int) -> None:
    """Wide tables scroll by themselves."""
    assert look(report, "light", width)["overflow"] <= 0


def test_the_page_as_written_shows_in_a_screenshot(report: Path, tmp_path: Path) -> None:
    """With its own policy in force, which keeps scripts and fetches out."""
    picture(report, "dark", tmp_path / "dark.png")
    assert (tmp_path / "dark.png").stat().st_size > 20_000
