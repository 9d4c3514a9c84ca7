"""Depth, heads and head size of one plain stack of attention layers, in every spelling in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from attnctl.exits import InputError
from attnctl.model.keys import LAYER_LIMIT, Keys, Value, shorten, sources
from attnctl.model.spec import Kind, LayerGroup


class Names(msgspec.Struct, frozen=True):
    """Key names of the sizes of one stack, the most telling first."""

    layers: tuple[str, ...]
    heads: tuple[str, ...]
    kv_heads: tuple[str, ...]
    head_size: tuple[str, ...]
    hidden: tuple[str, ...]


# hidden: Qwen2-VL's tower states its own width as embed_dim and its output as hidden_size;
# MobileBERT attends in its bottleneck, whose width is true_hidden_size
HIDDEN = (
    "true_hidden_size",
    "embed_dim",
    "d_model",
    "hidden_size",
    "dim",
    "emb_dim",
    "n_embd",
    "width",
    "hidden_dim",
    "vt_hidden_size",
    "image_emb_dim",
    "attention_dim",
)
GENERIC = Names(
    layers=(
        "num_hidden_layers",
        "n_layers",
        "n_layer",
        "num_layers",
        "layers",
        "depth",
        "num_blocks",
        "encoder_layers",
        "conf_num_hidden_layers",
        "vt_num_hidden_layers",
        "image_num_layers",
        "resampler_depth",
        "num_attention_layers",
        "decoder_layers",
    ),
    heads=(
        "num_attention_heads",
        "n_heads",
        "n_head",
        "num_heads",
        "heads",
        "attention_heads",
        "encoder_attention_heads",
        "conf_num_attention_heads",
        "vt_num_attention_heads",
        "image_num_heads",
        "resampler_n_heads",
        "decoder_attention_heads",
    ),
    kv_heads=("num_key_value_heads", "image_num_key_value_heads"),
    head_size=("head_dim", "dim_head", "d_head", "image_head_dim", "resampler_head_dim", "d_kv"),
    hidden=HIDDEN,
)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one stack: None where neither the file nor a default gives them.

    sources: field name -> key path, or "default of CLASS".
    """

    layers: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_size: int | None = None
    sources: dict[str, str] = {}


def read_shape(keys: Keys, names: Names = GENERIC) -> Shape:
    """The sizes that `keys` states, else those that its class assumes."""
    layers = keys.count(*names.layers, limit=LAYER_LIMIT)
    layers = layers or keys.count_or_default(*names.layers)
    heads = keys.count_or_default(*names.heads)
    kv_heads = keys.count_or_default(*names.kv_heads) or heads
    size = keys.count_or_default(*names.head_size) or quotient(keys, heads, names)
    return Shape(
        layers=number(layers),
        num_heads=number(heads),
        num_kv_heads=number(kv_heads),
        head_size=number(size),
        sources=sources(layers=layers, num_heads=heads, num_kv_heads=kv_heads, head_size=size),
    )


def number(given: Value[int] | None) -> int | None:
    return None if given is None else given.value


def quotient(keys: Keys, heads: Value[int] | None, names: Names) -> Value[int] | None:
    """Width over heads, rounded down as the modelling code does."""
    hidden = keys.count_or_default(*names.hidden)
    if hidden is None or heads is None or hidden.value < heads.value:
        return None
    return Value(hidden.value // heads.value, f"{hidden.source} / {heads.source}")


def complete(keys: Keys, names: Names = GENERIC) -> Shape:
    """`read_shape`, or InputError naming the first size that is missing and keys that give it."""
    return checked(read_shape(keys, names), keys, names)


def checked(shape: Shape, keys: Keys, names: Names = GENERIC) -> Shape:
    """`shape` if it has all that a group of attention layers needs."""
    wanted = (
        ("number of layers", shape.layers, names.layers),
        ("number of attention heads", shape.num_heads, names.heads),
        ("head size", shape.head_size, names.head_size[:1] + names.hidden),
    )
    for what, value, spellings in wanted:
        if not value:
            raise keys.missing(what, *spellings[:4])
    return bounded(shape, keys)


def bounded(shape: Shape, keys: Keys) -> Shape:
    """`shape` if its layers are so many as are read: where they are a sum, each part was."""
    if (shape.layers or 0) > LAYER_LIMIT:
        shown = shorten(shape.layers)
        raise InputError(
            f"{keys.ledger.file}: {shown} layers in all; at most {LAYER_LIMIT} are read"
        )
    return shape


def group_of(
    shape: Shape,
    kind: Kind = "encoder_self",
    stack: Literal["encoder", "decoder"] | None = None,
    layers: Sequence[int] | None = None,
    window: int | None = None,
    window_right: int | None = None,
    softcap: float | None = None,
    notes: dict[str, Any] | None = None,
) -> LayerGroup:
    """The layers of a complete `shape` as one group; `layers` defaults to all of them."""
    return LayerGroup(
        kind=kind,
        layers=tuple(range(shape.layers or 0) if layers is None else layers),
        stack=stack,
        head_size=shape.head_size,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        window=window,
        window_right=window_right,
        softcap=softcap,
        notes=notes or {},
        sources=shape.sources,
    )
