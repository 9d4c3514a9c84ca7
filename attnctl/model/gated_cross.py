"""Decoders with cross-attention blocks inserted at a rhythm (IDEFICS, Evolla, BLT)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from attnctl.model import decoder, parts
from attnctl.model.groups import in_order
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup

BYTES = ("encoder_config", "decoder_config")


def idefics(config: Config) -> tuple[LayerGroup, ...]:
    """Before every n-th layer, the first included."""
    groups = decoder.read(config)
    every = config.text.count_or_default("cross_layer_interval")
    if every is None:
        return groups
    layers = range(0, depth_of(groups), every.value)
    return in_order((*groups, cross(config.text, groups[0], layers, every.source)))


def evolla(config: Config) -> tuple[LayerGroup, ...]:
    """So many in all, evenly spread, each behind its layer."""
    groups = decoder.read(config)
    blocks = config.text.count_or_default("aligner_num_add_layers")
    if blocks is None:
        return groups
    depth = depth_of(groups)
    every = max(depth // blocks.value, 1)
    layers = range(every - 1, depth, every)
    return in_order((*groups, cross(config.text, groups[0], layers, blocks.source)))


def byte_level(config: Config) -> tuple[LayerGroup, ...]:
    """BLT's outer models: bytes see bytes, and patches in every layer or in one (at the seam)."""
    text = config.text
    groups = decoder.read(config)
    depth = depth_of(groups)
    seam = depth - 1 if text.model_type == "blt_local_encoder" else 0
    layers = range(depth) if text.is_true("cross_attn_all_layers") else range(seam, seam + 1)
    return in_order((*groups, cross(text, groups[0], layers, "cross_attn_all_layers")))


def blt(config: Config) -> tuple[LayerGroup, ...]:
    """BLT's parts; bytes see bytes through the window that the whole model states."""
    groups = parts.read(config)
    window = config.root.count("local_attention_window_len")
    if window is None:
        return groups
    return tuple(
        msgspec.structs.replace(
            group,
            kind="sliding",
            window=window.value,
            sources=group.sources | {"window": window.source},
        )
        if group.kind == "full" and group.notes.get("part") in BYTES
        else group
        for group in groups
    )


def depth_of(groups: Sequence[LayerGroup]) -> int:
    return 1 + max(layer for group in groups for layer in group.layers)


def cross(text: Keys, own: LayerGroup, layers: Sequence[int], source: str) -> LayerGroup:
    """Cross-attention of the decoder's heads and head size, each head with K and V of its own."""
    text.note(f"{source} places {len(layers)} cross-attention blocks beside the decoder's layers")
    return msgspec.structs.replace(
        own,
        kind="cross",
        layers=tuple(layers),
        num_kv_heads=own.num_heads,
        window=None,
        sources=own.sources | {"layers": source},
    )
