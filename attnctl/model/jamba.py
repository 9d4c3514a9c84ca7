"""Jamba: attention at an offset of each period, Mamba-1 elsewhere, no positions."""

from __future__ import annotations

from attnctl.model import decoder
from attnctl.model.attention import LAYERS, depth_of
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import Traits


def read(config: Config) -> tuple[LayerGroup, ...]:
    """The expert period beside the attention period is about the MLP, and is not read."""
    return decoder.build(config.text, _names(config.text), Traits(linear="mamba1", nope="all"))


def _names(text: Keys) -> Value[list[str]]:
    depth = depth_of(text).value
    listed = names_in_file(text, depth if text.has(*LAYERS) else None)
    if listed is not None:
        return listed
    period = text.count_or_default("attn_layer_period")
    offset = text.whole("attn_layer_offset") or text.default("attn_layer_offset")
    if period is None or offset is None:
        raise text.missing("pattern of layers", "attn_layer_period", "attn_layer_offset")
    names = ["full" if i % period.value == offset.value else "mamba" for i in range(depth)]
    return Value(names, f"{period.source}, {offset.source}")
