"""Nemotron: the Mamba-2 hybrids with a pattern string, and the models pruned block by block."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.model import decoder
from attnctl.model.attention import HEAD_SIZE, checked, depth_of, derived_head_size, heads_of
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value, sources
from attnctl.model.layer_names import names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import Traits

_TRAITS = Traits(linear="mamba2", nope="all")
_SMALLEST = ["mamba", "none", "full", "none"]  # what the class assumes without any list


def hybrid(config: Config) -> tuple[LayerGroup, ...]:
    """M is Mamba-2, * attention; - and E (MLP, experts) hold no cache."""
    text = config.text
    depth = text.count("num_hidden_layers")
    names = names_in_file(text, depth.value if depth else None)
    return decoder.build(text, names or Value(_SMALLEST, f"default of {text.model_type}"), _TRAITS)


def pruned(config: Config) -> tuple[LayerGroup, ...]:
    """Attention as each entry of block_configs has it: pruned, or with its own KV heads."""
    text = config.text
    blocks = text.items("block_configs")
    if blocks is None:
        return decoder.read(config)
    depth = depth_of(text)
    if len(blocks.value) != depth.value:
        raise text.wrong(blocks, f"one entry for each of {depth.value} layers")
    heads = heads_of(text)
    size = text.count(*HEAD_SIZE) or derived_head_size(text, heads)
    slots = [_kv_heads(text, entry, heads) for entry in text.each(blocks)]
    paths = {**sources(head_size=size, num_heads=heads), "num_kv_heads": blocks.source}

    def of_slot(kv_heads: int | None) -> list[LayerGroup]:
        if kv_heads is None:
            return [LayerGroup(kind="none", layers=(), sources={"kind": blocks.source})]
        full = LayerGroup(kind="full", layers=(), head_size=size.value, num_heads=heads.value)
        return [msgspec.structs.replace(full, num_kv_heads=kv_heads, sources=paths)]

    return assemble(slots, of_slot)


def _kv_heads(text: Keys, entry: Value[Any], heads: Value[int]) -> int | None:
    """KV heads of one block; None where it has no attention (left out, or made linear)."""
    if not isinstance(entry.value, dict):
        raise text.wrong(entry, "an object")
    attention = Keys(entry.value, entry.source, text.ledger).sub("attention")
    if attention is None or attention.is_true("no_op") or attention.is_true("replace_with_linear"):
        return None
    stated = attention.count("num_key_value_heads")
    if stated is not None:
        return checked(text, stated, heads).value
    group = attention.count("n_heads_in_group")
    if group is None:
        return heads.value
    return heads.value // checked(text, group, heads).value
