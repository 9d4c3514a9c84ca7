"""SmallThinker: a mask in which a one means sliding, and the window under a name of its own."""

from __future__ import annotations

from attnctl.model import decoder, plan
from attnctl.model.attention import depth_of
from attnctl.model.layer_names import masked
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import traits_of


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Full and sliding layers as sliding_window_layout has them."""
    text = config.text
    traits = traits_of(text.model_type)
    found = masked(text, "sliding_window_layout", depth_of(text).value, "sliding", "full")
    return decoder.build(text, found or plan.layer_names(text, traits), traits)
