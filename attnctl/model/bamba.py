"""Mamba-2 hybrids of one lineage: Bamba, Granite 4 and Falcon-H1."""

from __future__ import annotations

from attnctl.model import decoder
from attnctl.model.attention import LAYERS, depth_of
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import Traits

_TRAITS = Traits(linear="mamba2")


def bamba(config: Config) -> tuple[LayerGroup, ...]:
    """Attention in the layers of attn_layer_indices, Mamba-2 in all others."""
    text = config.text
    listed = _listed(text)
    if listed is None:
        depth = depth_of(text).value
        chosen = text.wholes("attn_layer_indices")
        wanted = frozenset(chosen.value if chosen else ())
        source = chosen.source if chosen else "no attn_layer_indices"
        listed = Value(["full" if i in wanted else "mamba" for i in range(depth)], source)
    return decoder.build(text, listed, _TRAITS)


def granite(config: Config) -> tuple[LayerGroup, ...]:
    """What layer_types says, which may be attention throughout; Mamba-2 where it is absent."""
    text = config.text
    listed = _listed(text) or Value(["mamba"] * depth_of(text).value, "no layer_types")
    position = text.text("position_embedding_type")
    bare = position is not None and position.value == "nope"
    return decoder.build(text, listed, Traits(linear="mamba2", nope="all" if bare else "none"))


def falcon_h1(config: Config) -> tuple[LayerGroup, ...]:
    """Both in every layer: a KV cache and a Mamba-2 state."""
    text = config.text
    depth = depth_of(text).value
    return decoder.build(text, Value(["hybrid"] * depth, "both in every layer"), _TRAITS)


def _listed(text: Keys) -> Value[list[str]] | None:
    return names_in_file(text, depth_of(text).value if text.has(*LAYERS) else None)
