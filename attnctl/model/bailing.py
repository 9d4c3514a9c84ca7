"""Bailing and Ring hybrids: one attention layer at the end of each group, linear ones before it."""

from __future__ import annotations

from attnctl.model import decoder
from attnctl.model.attention import LAYERS, depth_of
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import Traits


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Attention (latent where the file has a latent) and linear or gated-delta layers."""
    text = config.text
    kind = "kda" if text.model_type == "bailing_hybrid" else "linear"
    return decoder.build(text, _names(text), Traits(linear=kind))


def _names(text: Keys) -> Value[list[str]]:
    """Layers beyond the last whole group are attention too, except in bailing_hybrid."""
    depth = depth_of(text).value
    listed = names_in_file(text, depth if text.has(*LAYERS) else None)
    if listed is not None:
        return listed
    size = text.count_or_default("layer_group_size")
    if size is None:
        raise text.missing("size of a group of layers", "layer_group_size", "layer_types")
    whole = depth if text.model_type == "bailing_hybrid" else depth // size.value * size.value
    names = ["full" if (i + 1) % size.value == 0 or i >= whole else "linear" for i in range(depth)]
    return Value(names, size.source)
