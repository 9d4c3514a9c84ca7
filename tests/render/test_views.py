"""How views are drawn: for pipes, and for terminals of several widths."""

from __future__ import annotations

import io

import pytest

from attnctl.render.amounts import bytes_text, count_text, ranges
from attnctl.render.output import Output
from attnctl.render.plain import plain
from attnctl.render.terminal import drawn
from attnctl.render.view import Heading, Line, Mark, Table, View

VIEW: View = (
    Heading("backends"),
    Table(
        ("name", "wanted", "found"),
        (
            ("FLASH_ATTN", "compute capability 8.0 or newer, which is Ampere", Mark("7.5", "bad")),
            ("TRITON_ATTN", "a head size of at least 32", Mark("16", "bad")),
        ),
    ),
    Line(Mark("h200: none", "bad")),
)


def test_plain_text_is_aligned_and_uncut() -> None:
    """Columns start at one place, and nothing is shortened, however long."""
    lines = plain(VIEW).splitlines()
    assert lines == [
        "backends",
        "name         wanted                                            found",
        "FLASH_ATTN   compute capability 8.0 or newer, which is Ampere  7.5",
        "TRITON_ATTN  a head size of at least 32                        16",
        "h200: none",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_terminal_is_never_overrun(width: int) -> None:
    """No drawn line is wider than the terminal, and every word is still there."""
    text = drawn(VIEW, width, colour=False)
    assert max(map(len, text.splitlines())) <= width
    for word in ("FLASH_ATTN", "TRITON_ATTN", "Ampere", "7.5", "h200:"):
        assert word in text


def test_a_table_too_wide_is_shown_row_by_row() -> None:
    """At 30 columns each row becomes a block with the column names beside the values."""
    text = drawn(VIEW, 30, colour=False)
    assert "  wanted" in text
    assert text.index("FLASH_ATTN") < text.index("7.5") < text.index("TRITON_ATTN")


def test_without_colour_there_is_no_escape() -> None:
    """NO_COLOR means no control character at all, not only no colour."""
    assert "\x1b" not in drawn(VIEW, 80, colour=False)
    assert "\x1b[" in drawn(VIEW, 80, colour=True)


@pytest.mark.parametrize("terminal", [False, True])
def test_words_from_files_cannot_send_escapes(terminal: bool) -> None:
    """A name with control characters is shown without them."""
    hostile: View = (
        Heading("\x1b]0;owned\x07title"),
        Table(("a", "b"), (("\x1b[31mred", "two\nlines"),)),
        Line("[red]markup is not read[/red]\r"),
    )
    stream = io.StringIO()
    Output(stream, terminal=terminal, width=80, colour=False).view(hostile)
    text = stream.getvalue()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\r" not in text
    assert "two lines" in text
    assert "[red]markup is not read[/red]" in text


def test_words_that_a_stream_cannot_encode_are_replaced() -> None:
    """An ASCII terminal gets a question mark in place of an error."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Output(stream, terminal=False).text("naïve\n")
    assert raw.getvalue() == b"na?ve\n"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((), ""),
        ((3,), "3"),
        ((0, 1, 2, 3, 4, 6), "0-4, 6"),
        (range(0, 61, 2), "0-60 step 2"),
        ((1, 4, 9), "1, 4, 9"),
        ([n for n in range(62) if n % 6 != 5], "0-61 without 5-59 step 6"),
        ((5, 4, 4, 3), "3-5"),
    ],
)
def test_layers_are_named_as_short_as_they_can_be(numbers: list[int], text: str) -> None:
    """Runs, even steps, and what is left out of a run."""
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "?"),
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (232448, "227 KiB"),
        (150754820096, "140.4 GiB"),
    ],
)
def test_bytes_are_written_with_binary_units(count: int | None, text: str) -> None:
    """One decimal at most, and a question mark for what is not known."""
    assert bytes_text(count) == text


def test_counts_have_plurals() -> None:
    """1 layer, 2 layers."""
    assert (count_text(1, "layer"), count_text(2, "layer")) == ("1 layer", "2 layers")
