"""Models of nothing but Mamba layers; they have no KV cache, whatever their keys are called."""

from __future__ import annotations

import msgspec

from attnctl.model import states
from attnctl.model.attention import depth_of
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup


def mamba1(config: Config) -> tuple[LayerGroup, ...]:
    """Mamba and FalconMamba: a stated intermediate_size wins over expand x hidden size."""
    text = config.text
    layer = states.mamba1(text, text.count("intermediate_size", "d_inner"))
    return _all_layers(config, layer)


def mamba2(config: Config) -> tuple[LayerGroup, ...]:
    """num_heads and head_dim are those of the state."""
    return _all_layers(config, states.mamba2(config.text, pure=True))


def _all_layers(config: Config, layer: LayerGroup) -> tuple[LayerGroup, ...]:
    depth = depth_of(config.text)
    return (msgspec.structs.replace(layer, layers=tuple(range(depth.value))),)
