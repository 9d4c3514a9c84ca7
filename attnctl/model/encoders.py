"""Encoders and encoder-decoders: bidirectional self-attention, and cross-attention."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.model.attention import (
    HEADS,
    LAYERS,
    attention_of,
    depth_of,
    has_alibi,
    head_size_of,
    heads_of,
)
from attnctl.model.groups import in_order
from attnctl.model.keys import Keys, sources
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup

_HEAD_SIZE = ("d_kv", "head_dim", "attention_head_size")


def encoder_only(config: Config) -> tuple[LayerGroup, ...]:
    """One group of bidirectional layers, or causal ones where the file says is_decoder."""
    text = config.text
    depth = depth_of(text, "encoder_layers", *LAYERS)
    layer = attention_of(text)
    kind = "full" if text.is_true("is_decoder") else "encoder_self"
    return (msgspec.structs.replace(layer, kind=kind, layers=tuple(range(depth.value))),)


def encoder_decoder(config: Config) -> tuple[LayerGroup, ...]:
    """Encoder self-attention, decoder self-attention, cross-attention."""
    text = config.text
    encoder = _stack(text, ("encoder_layers", "num_encoder_layers"), "encoder")
    decoder = _stack(text, ("decoder_layers", "num_decoder_layers"), "decoder")
    cross = msgspec.structs.replace(decoder, kind="cross")
    return in_order((encoder, decoder, cross))


def _stack(text: Keys, layers: tuple[str, ...], stack: Any) -> LayerGroup:
    depth = depth_of(text, *layers, *LAYERS)
    heads = heads_of(text, f"{stack}_attention_heads", *HEADS)
    size = head_size_of(text, heads, *_HEAD_SIZE)
    return LayerGroup(
        kind="encoder_self" if stack == "encoder" else "full",
        stack=stack,
        layers=tuple(range(depth.value)),
        head_size=size.value,
        num_heads=heads.value,
        num_kv_heads=heads.value,
        alibi=has_alibi(text),
        sources=sources(layers=depth, num_heads=heads, num_kv_heads=heads, head_size=size),
    )
