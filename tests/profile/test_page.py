"""The page of a profile: self-contained, escaped, with a roofline that adds up."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from attnctl.profile.canonical import canonical
from attnctl.profile.page.chart import chart_of
from attnctl.profile.page.html import page
from attnctl.profile.page.roofline import Roof, bytes_of, floor_us, flops_of, roof_of
from attnctl.profile.values import Point, Profile, Shape
from tests.commands.running import ROOT, run
from tests.profile.factory import GRID, profile, write

LLAMA = Shape(op="paged", heads=32, kv_heads=8, head_size=128, head_size_v=128)
MLA = Shape(op="mla", heads=128, kv_heads=1, head_size=576, head_size_v=512)
VOID = {"meta", "wbr", "rect", "line"}


class Reader(HTMLParser):
    """Checks that what is opened is closed, and keeps what might fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def point(phase: str, batch: int, context: int, query: int = 1) -> Point:
    return Point(phase=phase, batch=batch, context=context, query=query, timings=())


def test_the_page_is_well_formed_and_fetches_nothing() -> None:
    """Its only links lead into itself."""
    text = page(profile("llama-3.1-8b", "mimo-v2-flash"))
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert "Out of the running: 6 pruned, 6 wrong." in text
    assert all(link.startswith("#shape-") for link in reader.links)
    assert "http" not in text.replace("http-equiv", "")
    assert "<script" not in text
    assert "url(" not in text


def test_a_name_cannot_put_anything_into_the_page() -> None:
    """Profiles come from anywhere."""
    document = profile(name='<script>alert("x")</script>')
    (entry,) = document.entries
    bad = msgspec.structs.replace(
        entry.points[0].timings[0], backend='<b onclick="x">', kernel="<i>"
    )
    points = (msgspec.structs.replace(entry.points[0], timings=(bad,)),)
    entries = (msgspec.structs.replace(entry, points=points, order=('<b onclick="x">',)),)
    text = page(msgspec.structs.replace(document, entries=entries))
    assert "<script" not in text
    assert "<b onclick" not in text
    assert "<i>" not in text.replace("<i></i>", "")


def test_a_profile_without_timings_is_a_page_too() -> None:
    """With its head alone."""
    text = page(msgspec.structs.replace(profile(), entries=()))
    assert "<h1>attnctl profile: invented</h1>" in text
    assert "<section" not in text


@pytest.mark.parametrize(
    ("shape", "at", "count"),
    [
        # K and V of every token, query and output of one
        (LLAMA, point("decode", 2, 1000), 2 * 1000 * 8 * 256 * 2 + 2 * 32 * 256 * 2),
        # the cache is one byte an element
        (
            msgspec.structs.replace(LLAMA, kv_cache_dtype="fp8"),
            point("decode", 2, 1000),
            2 * 1000 * 8 * 256 + 2 * 32 * 256 * 2,
        ),
        # no more than the window is kept
        (
            msgspec.structs.replace(LLAMA, window=128),
            point("decode", 2, 1000),
            2 * 128 * 8 * 256 * 2 + 2 * 32 * 256 * 2,
        ),
        # the latent row once for K and V
        (MLA, point("decode", 1, 1000), 1000 * 576 * 2 + 128 * 1088 * 2),
        # the states in and out, and the widest row of each token
        (Shape(op="mamba2", state=((3, 64), (4, 8))), point("decode", 3, 9), 2 * 3 * 224 * 4 + 768),
    ],
)
def test_bytes_are_those_of_the_cache_and_of_what_goes_in_and_out(
    shape: Shape, at: Point, count: int
) -> None:
    """Each once."""
    assert bytes_of(shape, at) == count


def test_operations_are_those_of_a_causal_half() -> None:
    """A whole prompt sees half of itself, a chunk nearly all of its context, a window its width."""
    per_key = 2 * 32 * 256
    assert flops_of(LLAMA, point("prefill", 1, 4, 4)) == per_key * (1 + 2 + 3 + 4)
    assert flops_of(LLAMA, point("prefill", 2, 100, 1)) == 2 * per_key * 100
    windowed = msgspec.structs.replace(LLAMA, window=2)
    assert flops_of(windowed, point("decode", 1, 100)) == per_key * 2
    encoder = msgspec.structs.replace(LLAMA, features=("encoder_only",))
    assert flops_of(encoder, point("prefill", 1, 4, 4)) == per_key * 16


def test_the_floor_is_the_slower_of_memory_and_compute() -> None:
    """One microsecond at 1 GB/s for 1000 bytes; nothing where the bandwidth is not known."""
    at = point("decode", 1, 1000)
    memory = bytes_of(LLAMA, at) / 2000 / 1e3
    fast = Roof(bandwidth_gbps=2000, gflops=1e9, source="test")
    slow = Roof(bandwidth_gbps=2000, gflops=1.0, source="test")
    assert floor_us(LLAMA, at, fast) == pytest.approx(memory)
    assert floor_us(LLAMA, at, slow) == pytest.approx(flops_of(LLAMA, at) / 1e3)
    assert floor_us(LLAMA, at, Roof(bandwidth_gbps=None, gflops=None, source="")) is None


def test_the_bandwidth_is_the_tunes_or_else_the_data_sheets() -> None:
    """A bundled machine of the same key has one; an unknown key has none."""
    document = profile()
    assert roof_of(document).bandwidth_gbps == 2900
    bare = msgspec.structs.replace(document, conditions={})
    assert roof_of(bare) == Roof(bandwidth_gbps=3350, gflops=None, source="the data sheet of h100")
    other = msgspec.structs.replace(bare, key=msgspec.structs.replace(bare.key, arch="sm_00"))
    assert roof_of(other).bandwidth_gbps is None


def charted(document: Profile) -> list[str]:
    (entry,) = canonical(document).entries
    chart = chart_of(entry, roof_of(document))
    return [grid.title for grid in chart.grids]


def test_grids_are_told_apart_by_phase_and_query() -> None:
    """Whole prompts of all lengths make one, chunks of one size another."""
    grid = (*GRID[:1], ("decode", 1, 1024, 4), ("prefill", 1, 512, 512), ("prefill", 1, 2048, 2048))
    assert charted(profile(grid=(*grid, ("prefill", 1, 2048, 512)))) == [
        "decode",
        "decode, 4 tokens at once",
        "prefill of whole prompts",
        "prefill in chunks of 512",
    ]


def test_the_command_writes_the_page_and_says_where_matplotlib_is_missing(tmp_path: Path) -> None:
    """Exit 2 and the extra's name; without a target it is wrong usage."""
    path, target = write(tmp_path / "p.json", profile()), tmp_path / "r.html"
    assert run("profile", "report", str(path), "-o", str(target)).code == 0
    assert target.read_text("utf-8") == page(profile())
    assert run("profile", "report", str(path)).code == 2
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from attnctl.cli import run\n"
        f"sys.exit(run(['profile', 'report', {str(path)!r}, '--png', {str(tmp_path / 'r.png')!r}]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "attnctl[report]" in ran.stderr


def test_the_picture_is_drawn_by_matplotlib(tmp_path: Path) -> None:
    """A PNG of a row per shape."""
    path = write(tmp_path / "p.json", profile("llama-3.1-8b", "gpt-oss-20b"))
    assert run("profile", "report", str(path), "--png", str(tmp_path / "r.png")).code == 0
    data = (tmp_path / "r.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert width > 1000
    assert height > 1000
    assert re.search(rb"IEND.{4}$", data, re.DOTALL)
