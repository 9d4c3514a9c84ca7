"""Encoder-decoders put together from two models, each with a config of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from attnctl.exits import InputError
from attnctl.model import decoder, encdec, encoders
from attnctl.model.families import GENERIC, home_of, reader_of
from attnctl.model.groups import in_order
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config, find_text
from attnctl.model.shape import Names, complete, group_of
from attnctl.model.spec import LayerGroup

Groups = tuple[LayerGroup, ...]


class Pair(msgspec.Struct, frozen=True):
    """Where the two halves stand: "" for the keys beside them, None for no such half.

    crosses: False where the encoder's states are put before the decoder's own tokens.
    """

    encoder: str | None
    decoder: str
    crosses: bool = True


PAIRS: Mapping[str, Pair] = {
    "canary": Pair("encoder_config", "decoder_config"),
    "canary_decoder": Pair(None, ""),
    "cohere_asr": Pair("encoder_config", ""),
    "dia": Pair("encoder_config", "decoder_config"),
    "dia_decoder": Pair(None, ""),
    "encoder-decoder": Pair("encoder", "decoder"),
    "moonshine_streaming": Pair("encoder_config", ""),
    "musicgen": Pair("text_encoder", "decoder"),
    "musicgen_decoder": Pair(None, ""),
    "musicgen_melody": Pair("text_encoder", "decoder", crosses=False),
    "musicgen_melody_decoder": Pair(None, "", crosses=False),
    "nougat": Pair("encoder", "decoder"),
    "pix2struct": Pair("vision_config", "text_config"),
    "pix2struct_text_model": Pair(None, ""),
    "speech-encoder-decoder": Pair("encoder", "decoder"),
    "t5gemma": Pair("encoder", "decoder"),
    "t5gemma2": Pair("encoder", "decoder"),
    "vision-encoder-decoder": Pair("encoder", "decoder"),
}
# the decoder attends to its own tokens and to the encoder's states in one operation
MERGED = frozenset({"t5gemma2"})
CROSS = Names(
    layers=("num_hidden_layers", "num_layers"),
    heads=("cross_num_attention_heads",),
    kv_heads=("cross_num_key_value_heads",),
    head_size=("cross_head_dim",),
    hidden=("cross_hidden_size",),
)


def read(config: Config) -> Groups:
    """encoder_self groups, then the decoder's, then the cross-attention."""
    root = next(
        keys for keys in config.chain if keys.model_type == "rag" or keys.model_type in PAIRS
    )
    return rag(root) if root.model_type == "rag" else pair(root)


def rag(root: Keys) -> Groups:
    """The generator; the question encoder runs apart, before it."""
    return read_part(half(root, "generator"))


def pair(root: Keys) -> Groups:
    made = PAIRS[root.model_type or ""]
    groups = list(encoder_half(root, made.encoder)) if made.encoder else []
    own = half(root, made.decoder) if made.decoder else root
    groups += decoder_half(own, made.crosses, merged=root.model_type in MERGED)
    return in_order(groups)


def half(root: Keys, name: str) -> Keys:
    """The object under `name` with its own model type."""
    inner = root.sub(name)
    if inner is None:
        raise root.missing(f"object for its {name.removesuffix('_config')}", name)
    stated = inner.text("model_type")
    return inner.of_type(stated.value if stated else None)


def read_part(keys: Keys) -> Groups:
    """The groups of a config that stands inside another."""
    config = find_text(keys)
    return reader_of(config)(config)


def encoder_half(root: Keys, name: str) -> Groups:
    """The encoder's groups; of a model with two stacks, those of its encoder."""
    inner = find_text(half(root, name))
    if reader_is_generic(inner.text):
        groups = encoders.read_encoder(inner.text)
    else:
        groups = reader_of(inner)(inner)
    if any(group.stack == "decoder" for group in groups):
        groups = tuple(group for group in groups if group.stack == "encoder")
    return tuple(placed(group, "encoder") for group in groups)


def reader_is_generic(keys: Keys) -> bool:
    return (home_of(keys.model_type) or GENERIC) == GENERIC


def decoder_half(own: Keys, crosses: bool, merged: bool) -> Groups:
    """Causal groups, and one cross group for all layers (merged: a note instead)."""
    if home_of(own.model_type) == "encdec:read":
        return encdec.decoder_groups(encdec.decoder_shape(own), encdec.notes_of(own))
    groups = [placed(group, "decoder") for group in causal(own)]
    if merged:
        note = {"merged_cross": "attends to the encoder's states in the same operation"}
        return tuple(msgspec.structs.replace(g, notes=g.notes | note) for g in groups)
    return (*groups, cross_of(own, groups)) if crosses else tuple(groups)


def causal(own: Keys) -> Groups:
    """The decoder's self-attention, whatever its config says of being one."""
    if home_of(own.model_type) == "encoders:read":  # BERT and its kin, turned into decoders
        return (group_of(encoders.shape_of(own), "full"),)
    return decoder.read(Config(own, own, (own,)))


def cross_of(own: Keys, groups: list[LayerGroup]) -> LayerGroup:
    """Cross-attention in every layer, of its own sizes where the file states them."""
    layers = sorted({layer for group in groups for layer in group.layers})
    if own.count_or_default("cross_num_attention_heads") is not None:
        return group_of(complete(own, CROSS), "cross", stack="decoder", layers=layers)
    first = groups[0] if groups else None
    if first is None:
        raise InputError(f"{own.ledger.file}: {own.path or 'the decoder'} has no layers")
    bare: dict[str, Any] = {"kind": "cross", "window": None, "chunk": None, "notes": {}}
    return msgspec.structs.replace(first, layers=tuple(layers), **bare)


def placed(group: LayerGroup, stack: Literal["encoder", "decoder"]) -> LayerGroup:
    return msgspec.structs.replace(group, stack=stack)
