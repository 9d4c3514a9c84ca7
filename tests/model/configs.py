"""Small configs of our own for the tests of reading, and short ways to look at what was read."""

from __future__ import annotations

from typing import Any

from attnctl.model import read_model
from attnctl.model.spec import LayerGroup, ModelSpec

DECODER: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 6,
    "hidden_size": 192,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 96,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 40,
    "v_head_dim": 24,
}


def decoder(model_type: str = "llama", **changes: Any) -> dict[str, Any]:
    return {**DECODER, "model_type": model_type, **changes}


def read(config: dict[str, Any]) -> ModelSpec:
    return read_model(config)


def groups(config: dict[str, Any]) -> tuple[LayerGroup, ...]:
    return read_model(config).groups


def in_short(config: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(stack, kind, number of layers, heads, head size) of each group."""
    return [(g.stack, g.kind, len(g.layers), g.num_heads, g.head_size) for g in groups(config)]


def only(config: dict[str, Any]) -> LayerGroup:
    found = groups(config)
    assert len(found) == 1, [(g.kind, g.layers) for g in found]
    return found[0]


def by_kind(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Kind -> layers, for models with one group of each kind."""
    found = groups(config)
    table = {group.kind: group.layers for group in found}
    assert len(table) == len(found), [(g.kind, g.layers) for g in found]
    return table
