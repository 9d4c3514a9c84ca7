"""Kimi Linear: latent attention without rope in a few layers, gated delta layers in the rest."""

from __future__ import annotations

from attnctl.model import decoder
from attnctl.model.attention import LAYERS, depth_of
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import Traits


def read(config: Config) -> tuple[LayerGroup, ...]:
    """The lists of linear_attn_config count layers from one."""
    return decoder.build(config.text, _names(config.text), Traits(linear="kda"))


def _names(text: Keys) -> Value[list[str]]:
    depth = depth_of(text).value
    listed = names_in_file(text, depth if text.has(*LAYERS) else None)
    if listed is not None:
        return listed
    full = text.wholes("linear_attn_config.full_attn_layers")
    linear = text.wholes("linear_attn_config.kda_layers")
    if full is None or linear is None:
        names = ["full" if i and i % 4 == 0 else "linear" for i in range(depth)]
        return Value(names, f"pattern of {text.model_type}")
    missing = sorted(set(range(1, depth + 1)) - {*full.value, *linear.value})
    if missing:
        raise text.wrong(linear, f"with {full.source}, every layer from 1 to {depth}")
    chosen = frozenset(full.value)
    return Value(["full" if i + 1 in chosen else "linear" for i in range(depth)], full.source)
