"""Truth values in words, wherever a person reads them."""

from __future__ import annotations

from attnctl.machines.differences import Difference
from attnctl.profile.knob_text import knob_text
from attnctl.render.difference import difference_view
from attnctl.render.plain import plain


def test_a_feature_that_came_is_no_then_yes() -> None:
    """Not Python's words."""
    text = plain(difference_view("old.json", (Difference("cpu.isa.avx2", False, True),)))
    assert text.splitlines()[1].split() == ["cpu.isa.avx2", "no", "yes"]


def test_a_knob_is_shown_as_it_is_written() -> None:
    """true and false in small letters, as in a profile's JSON."""
    assert knob_text("groups", False) == "groups=false"
    assert knob_text("decode.keys", 128) == "decode.keys=128"
