"""MiniMax: softmax attention every so often, lightning attention in all other layers."""

from __future__ import annotations

from attnctl.model import decoder, plan
from attnctl.model.attention import LAYERS, depth_of
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import masked, names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import Cycle, Traits


def read(config: Config) -> tuple[LayerGroup, ...]:
    """In attn_type_list a one is softmax and a zero linear; all ones are no hybrid at all."""
    return decoder.build(config.text, _names(config.text), Traits(linear="linear"))


def _names(text: Keys) -> Value[list[str]]:
    depth = depth_of(text).value
    found = masked(text, "attn_type_list", depth, "full", "linear")
    found = found or names_in_file(text, depth if text.has(*LAYERS) else None)
    if found is not None:
        return found
    if text.model_type == "minimax":
        return plan.cycle_names(text, depth, Cycle(2, "first", majority="linear"))
    if text.model_type != "minimax_m2":
        raise text.missing("list of layer kinds", "attn_type_list", "layer_types")
    return Value(["full"] * depth, "every layer of minimax_m2 is full attention")
