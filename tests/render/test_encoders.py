"""Encoders as the table shows them: windows of two sides, models of several parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnctl.cli import run

MODERNBERT = {
    "model_type": "modernbert",
    "hidden_size": 64,
    "num_attention_heads": 1,
    "num_hidden_layers": 2,
    "local_attention": 128,
    "global_attn_every_n_layers": 2,
}


def test_a_two_sided_window_is_shown_with_both_sides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """128 is the whole width, of which half lies to the left of the query."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(MODERNBERT), encoding="utf-8")
    run(["select", "--model", str(config), "--machine", "h200"])
    words = " ".join(capsys.readouterr().out.split())
    assert "window 128 (64 left, 64 right)" in words


def test_the_part_of_a_model_is_named_beside_its_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Layer ids start anew in each part, so they need its name."""
    stack = {"hidden_size": 64, "num_attention_heads": 1, "num_hidden_layers": 2}
    sam = {
        "model_type": "sam",
        "vision_config": {"model_type": "sam_vision_model", **stack},
        "mask_decoder_config": {"model_type": "sam_mask_decoder", **stack},
    }
    config = tmp_path / "config.json"
    config.write_text(json.dumps(sam), encoding="utf-8")
    run(["select", "--model", str(config), "--machine", "h200"])
    words = " ".join(capsys.readouterr().out.split())
    assert "encoder_self 0-1 of vision_config" in words
    assert "cross 0-1 of mask_decoder_config" in words
