"""A demand says where it came from, also where no key of the file raises it."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnctl.model import read_model

MODELS = Path(__file__).parent.parent / "models"


@pytest.mark.parametrize(
    ("name", "field", "source"),
    [
        ("gpt-oss-20b", "sinks", "model_type gpt_oss"),
        ("mimo-v2-flash", "sinks", "add_swa_attention_sink_bias"),
        ("bloom-7b1", "alibi", "model_type bloom"),
        ("gemma-3-27b", "prefix_lm", "model_type gemma3_text"),
    ],
)
def test_each_demand_names_its_key_or_the_model_type(name: str, field: str, source: str) -> None:
    """Learned sinks without a key, sinks by a flag, ALiBi by type, images seen both ways."""
    groups = [g for g in read_model(MODELS / f"{name}.json").groups if getattr(g, field)]
    assert groups
    assert {group.sources[field] for group in groups} == {source}
