"""Llama 3.2 Vision: some decoder layers attend to the picture instead of to the text."""

from __future__ import annotations

from attnctl.model import decoder
from attnctl.model.attention import depth_of
from attnctl.model.keys import Value
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import PLAIN

_DEFAULT = (3, 8, 13, 18, 23, 28, 33, 38)


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Cross-attention in the layers of cross_attention_layers; add_cross_attention is not read."""
    text = config.text
    depth = depth_of(text).value
    given = text.wholes("cross_attention_layers")
    chosen = given or Value(_DEFAULT, f"default of {text.model_type}")
    names = ["cross" if i in chosen.value else "full" for i in range(depth)]
    return decoder.build(text, Value(names, chosen.source), PLAIN)
