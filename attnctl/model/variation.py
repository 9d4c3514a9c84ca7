"""Heads and widths that differ from layer to layer, and the slot that keeps layers apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from attnctl.model.attention import HEADS, KV_HEADS, with_heads
from attnctl.model.keys import Keys, Value
from attnctl.model.spec import LayerGroup

_HEADS_PER_LAYER = ("num_attention_heads_per_layer", *HEADS)
_KV_HEADS_PER_LAYER = ("num_key_value_heads_per_layer", *KV_HEADS)


class Slot(msgspec.Struct, frozen=True):
    """What tells one layer from another: its name, its own heads and widths, shared KV or not."""

    name: str
    heads: Value[int] | None = None
    kv_heads: Value[int] | None = None
    head_size: Value[int] | None = None
    shared: bool = False


def slots_of(text: Keys, names: Sequence[str], shared: Mapping[int, int]) -> list[Slot]:
    """One slot per layer: lists with an entry per layer, then `per_layer_config`."""
    depth = len(names)
    heads = _per_layer(text, depth, _HEADS_PER_LAYER)
    kv_heads = _per_layer(text, depth, _KV_HEADS_PER_LAYER)
    own = _overrides(text)
    slots = []
    for layer, name in enumerate(names):
        mine = own.get(layer)
        slots.append(
            Slot(
                name,
                (mine and mine.count("num_attention_heads")) or heads[layer],
                (mine and mine.count("num_key_value_heads")) or kv_heads[layer],
                mine.count("head_dim") if mine else None,
                layer in shared,
            )
        )
    return slots


def varied(full: LayerGroup, slot: Slot) -> LayerGroup:
    """The attention layer with the heads and widths of this slot; latent layers keep theirs."""
    if full.mla is not None or full.kind == "none":
        return full
    return with_heads(full, slot.heads, slot.kv_heads, slot.head_size)


def _per_layer(text: Keys, depth: int, names: tuple[str, ...]) -> list[Value[int] | None]:
    key = next((n for n in names if isinstance(text.data.get(n), list) and text.data[n]), None)
    given = text.wholes(key) if key else None
    if given is None:
        return [None] * depth
    if len(given.value) < depth:
        raise text.wrong(Value(list(given.value), given.source), f"one entry per layer ({depth})")
    # one source for all: equal numbers must compare equal, whichever entry they came from
    return [Value(number, given.source) if number else None for number in given.value[:depth]]


def _overrides(text: Keys) -> dict[int, Keys]:
    section = text.sub("per_layer_config")
    if section is None:
        return {}
    found = {}
    for key, value in section.data.items():
        if str(key).isdigit() and isinstance(value, dict) and len(str(key)) < 6:
            # the path names the section, not the entry, so that equal layers compare equal
            found[int(key)] = Keys(value, section.path, text.ledger)
    return found
