"""vLLM's picks for public shapes on every bundled machine: any change shows as a line."""

from __future__ import annotations

from attnctl import machines
from tests.engines import golden
from tests.engines.shapes import MODELS


def test_the_table_of_picks_is_the_agreed_one() -> None:
    """A new rule, machine or package list that moves a pick must move this file, knowingly."""
    assert golden.text().splitlines() == golden.GOLDEN.read_text().splitlines()


def test_the_table_covers_twenty_models_and_every_machine() -> None:
    """Each bundled machine is in each section, so none can drop out unseen."""
    text = golden.GOLDEN.read_text()
    assert len(MODELS) >= 20
    sections = sum(2 if any(g.is_ssm for g in m.groups) else len(m.groups) for m in MODELS)
    for name in machines.names():
        lines = [line for line in text.splitlines() if f" {name} " in f"{line} "]
        assert len(lines) == sections, name
