"""The agreed table of picks: a change of any pick, anywhere, shows as a changed line."""

from __future__ import annotations

from tests.golden.select import GOLDEN, text


def test_the_picks_for_public_models_on_every_machine_are_the_agreed_ones() -> None:
    """Refresh with `python -m tests.golden.select > tests/golden/select.txt` and read the diff."""
    assert text() == GOLDEN.read_text()
