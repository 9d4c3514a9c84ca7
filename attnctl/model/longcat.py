"""LongCat-Flash: two latent attentions in each layer, each with a cache of its own."""

from __future__ import annotations

import msgspec

from attnctl.model.attention import LAYERS, depth_of
from attnctl.model.keys import LAYER_LIMIT, Value
from attnctl.model.mla import mla_of
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup


def read(config: Config) -> tuple[LayerGroup, ...]:
    """One latent group with an id per cache: 2i and 2i + 1 belong to layer i."""
    text = config.text
    blocks = text.count("num_layers", "n_layers", limit=LAYER_LIMIT // 2)
    depth = Value(2 * blocks.value, f"2 * {blocks.source}") if blocks else depth_of(text, *LAYERS)
    layer = mla_of(text)
    notes = {**layer.notes, "caches_per_layer": 2}
    paths = {**layer.sources, "layers": depth.source}
    group = msgspec.structs.replace(
        layer, layers=tuple(range(depth.value)), notes=notes, sources=paths
    )
    return (group,)
