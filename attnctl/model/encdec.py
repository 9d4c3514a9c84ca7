"""Encoder-decoder families: the encoder's self-attention, the decoder's, and the one across.

Sizes carry the prefix of their stack (BART and its kin), or the two share one set with a depth of
their own (T5 and its kin). A decoder depth that is missing equals the encoder's.
"""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.model.encoders import windowed_groups
from attnctl.model.keys import LAYER_LIMIT, Keys, Value, first
from attnctl.model.nesting import Config
from attnctl.model.shape import HIDDEN, Names, Shape, checked, group_of, read_shape
from attnctl.model.spec import Kind, LayerGroup

ENCODER = Names(
    layers=(
        "encoder_layers",
        "num_encoder_layers",
        "encoder_num_hidden_layers",
        "num_layers",
        "num_hidden_layers",
    ),
    heads=(
        "encoder_attention_heads",
        "num_encoder_attention_heads",
        "encoder_num_attention_heads",
        "num_heads",
        "num_attention_heads",
    ),
    kv_heads=("encoder_num_key_value_heads", "num_key_value_heads"),
    head_size=("d_kv", "head_dim"),
    hidden=("d_model", *HIDDEN),
)
DECODER = Names(
    layers=("decoder_layers", "num_decoder_layers", "decoder_num_hidden_layers"),
    heads=(
        "decoder_attention_heads",
        "num_decoder_attention_heads",
        "decoder_num_attention_heads",
        "num_heads",
        "num_attention_heads",
        "encoder_attention_heads",
    ),
    kv_heads=("decoder_num_key_value_heads", "num_key_value_heads"),
    head_size=("d_kv", "head_dim"),
    hidden=("d_model", *HIDDEN),
)
SPEECH = Names(
    layers=("speech_encoder_layers",),
    heads=("speech_encoder_attention_heads",),
    kv_heads=(),
    head_size=(),
    hidden=("hidden_size",),
)
# families of which only the decoder is there
DECODER_ONLY = frozenset({"trocr", "pp_formulanet_text"})
# what an encoder does instead of plain attention to everything
ENCODER_PATTERNS = ("attention_type", "encoder_attention_type")
RELATIVE_BIAS = frozenset(
    {"t5", "mt5", "umt5", "longt5", "switch_transformers", "pop2piano", "udop", "byt5"}
)


def read(config: Config) -> tuple[LayerGroup, ...]:
    groups = read_encoder_decoder(config.text)
    if not encoder_alone(config.root):
        return groups
    kept = (group for group in groups if group.stack == "encoder")
    return tuple(msgspec.structs.replace(group, stack=None) for group in kept)


def encoder_alone(root: Keys) -> bool:
    """True where the architecture is the encoder only (T5EncoderModel)."""
    names = root.data.get("architectures")
    return isinstance(names, list) and bool(names) and str(names[0]).endswith("EncoderModel")


def read_encoder_decoder(keys: Keys) -> tuple[LayerGroup, ...]:
    """encoder_self, full and cross groups, each with its stack."""
    decoder = decoder_shape(keys)
    groups = decoder_groups(decoder, notes_of(keys))
    if keys.model_type in DECODER_ONLY:
        return groups
    encoder = checked(read_shape(keys, ENCODER), keys, ENCODER)
    return (*encoder_groups(keys, encoder), *groups, *text_to_units(keys))


def text_to_units(keys: Keys) -> tuple[LayerGroup, ...]:
    """SeamlessM4T's second pair, which turns text into units of speech (version 2: all at once)."""
    encoder, decoder = (read_shape(keys, prefixed(stack)) for stack in ("encoder", "decoder"))
    if not (encoder.head_size and decoder.head_size and encoder.layers and decoder.layers):
        return ()
    notes = {"part": "t2u"}
    own = group_of(encoder, stack="encoder", notes=notes)
    if keys.model_type == "seamless_m4t_v2":
        return own, group_of(decoder, stack="decoder", notes=notes)
    kinds: tuple[Kind, Kind] = ("full", "cross")
    return own, *(group_of(decoder, kind, stack="decoder", notes=notes) for kind in kinds)


def prefixed(stack: str) -> Names:
    return Names(
        layers=(f"t2u_{stack}_layers",),
        heads=(f"t2u_{stack}_attention_heads",),
        kv_heads=(),
        head_size=(),
        hidden=("hidden_size",),
    )


def encoder_groups(keys: Keys, shape: Shape) -> tuple[LayerGroup, ...]:
    """The encoder's own attention, local layers apart; SeamlessM4T's speech encoder too."""
    notes = notes_of(keys)
    for name in ENCODER_PATTERNS:
        pattern = keys.text(name)
        if pattern is not None and pattern.value not in ("original_full", "full"):
            notes[name] = pattern.value
    groups = windowed_groups(keys, shape, notes, stack="encoder")
    speech = read_shape(keys, SPEECH)
    if speech.layers and speech.num_heads and speech.head_size:
        own = group_of(speech, stack="encoder", notes={"part": "speech_encoder"})
        return (*groups, own)
    return groups


def decoder_groups(shape: Shape, notes: dict[str, Any]) -> tuple[LayerGroup, ...]:
    """Causal self-attention, and cross-attention of the same sizes in every layer."""
    return (
        group_of(shape, "full", stack="decoder", notes=notes),
        group_of(shape, "cross", stack="decoder"),
    )


def decoder_shape(keys: Keys) -> Shape:
    shape = read_shape(keys, DECODER)
    if shape.layers is None:
        stated = first(*(keys.whole(name) for name in DECODER.layers))
        if stated is not None:
            raise keys.wrong(stated, "1 or more")
        depth = keys.count(*ENCODER.layers, limit=LAYER_LIMIT)
        depth = depth or keys.count_or_default(*ENCODER.layers)
        if depth is not None:
            shape = with_depth(shape, depth)
    return checked(shape, keys, DECODER)


def with_depth(shape: Shape, depth: Value[int]) -> Shape:
    source = f"{depth.source} (the decoder's own depth is not stated)"
    sources = shape.sources | {"layers": source}
    return msgspec.structs.replace(shape, layers=depth.value, sources=sources)


def notes_of(keys: Keys) -> dict[str, Any]:
    if keys.model_type in RELATIVE_BIAS:
        return {"score_bias": "relative positions", "scale": 1.0}
    return {}
