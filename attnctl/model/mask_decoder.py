"""SAM's mask decoders: points look at themselves, then points and image at each other."""

from __future__ import annotations

import msgspec

from attnctl.model.keys import LAYER_LIMIT
from attnctl.model.nesting import Config
from attnctl.model.shape import checked, group_of, read_shape
from attnctl.model.spec import LayerGroup

LAYERS = 2  # where the file is silent: the depth of every one that is published


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Self-attention of the points, and two cross-attentions per layer at a reduced width."""
    keys = config.text
    shape = read_shape(keys)
    layers = keys.count("num_hidden_layers", limit=LAYER_LIMIT)
    shape = msgspec.structs.replace(shape, layers=layers.value if layers else LAYERS)
    shape = checked(shape, keys)
    rate = keys.count_or_default("attention_downsample_rate")
    size = max(1, (shape.head_size or 1) // (rate.value if rate else 2))
    across = msgspec.structs.replace(shape, head_size=size)
    return group_of(shape), group_of(across, "cross", notes={"directions": 2})
