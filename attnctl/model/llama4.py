"""Llama 4: chunked attention with rope in most layers, full attention without positions between."""

from __future__ import annotations

from attnctl.model import decoder, plan
from attnctl.model.attention import LAYERS, depth_of
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import masked, names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import Cycle, Traits


def read(config: Config) -> tuple[LayerGroup, ...]:
    """In no_rope_layers a one means rope, and a layer with rope is chunked."""
    text = config.text
    return decoder.build(text, _names(text), Traits(nope="full"))


def _names(text: Keys) -> Value[list[str]]:
    depth = depth_of(text).value
    if text.has("attention_chunk_size") and text.count("attention_chunk_size") is None:
        return Value(["full"] * depth, "attention_chunk_size")
    listed = names_in_file(text, depth if text.has(*LAYERS) else None)
    listed = listed or masked(text, "no_rope_layers", depth, "chunked", "full")
    cycle = Cycle(4, "last", ("no_rope_layer_interval",), majority="chunked")
    return listed or plan.cycle_names(text, depth, cycle)
