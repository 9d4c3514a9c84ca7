"""Which state a layer keeps, by the name of its kind or by the keys that describe it."""

from __future__ import annotations

from attnctl.model.keys import Keys
from attnctl.model.linear_states import gdn, kda, lightning, short_conv
from attnctl.model.spec import LayerGroup
from attnctl.model.states import HEAD_WIDTH, HEADS, STATE_SIZE, mamba1, mamba2


def state_of(kind: str, text: Keys) -> LayerGroup:
    """The group template of one kind of state layer."""
    if kind == "mamba2":
        return mamba2(text)
    readers = {"mamba1": mamba1, "gdn": gdn, "kda": kda, "short_conv": short_conv}
    return readers[kind](text) if kind in readers else lightning(text)


def linear_kind(text: Keys) -> str:
    """What a "linear_attention" layer of an unknown family is, by the keys that describe it."""
    if text.has("linear_num_value_heads", "linear_key_head_dim"):
        return "gdn"
    if text.has("linear_attn_config", "linear_num_heads"):
        return "kda"
    return mamba_kind(text) if text.has(*STATE_SIZE) else "linear"


def mamba_kind(text: Keys) -> str:
    """What a "mamba" layer of an unknown family is: heads make it the second kind."""
    return "mamba2" if text.has(*HEADS, *HEAD_WIDTH) else "mamba1"
