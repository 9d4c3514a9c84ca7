"""Encoder-only families: every layer sees both ways, and nothing is cached."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.model.attention import has_alibi
from attnctl.model.blocks import Form, layer_forms, square_notes
from attnctl.model.groups import in_order
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.shape import Shape, checked, complete, group_of, read_shape
from attnctl.model.spec import LayerGroup
from attnctl.model.stages import per_stage
from attnctl.model.two_sided import TwoSided, layer_windows
from attnctl.model.variation import Slot, slots_of, varied

# attention scores carry a bias that depends on the distance of the two tokens
RELATIVE_BIAS = {
    "deberta": "disentangled content and position terms",
    "deberta-v2": "disentangled content and position terms",
    "funnel": "relative positions",
    "mpnet": "relative positions",
    "xlnet": "relative positions",
    "tapas": "",
    "layoutlmv2": "relative 1-D and 2-D positions",
    "layoutlmv3": "relative 1-D and 2-D positions",
    "layoutxlm": "relative 1-D and 2-D positions",
    "beit": "relative positions",
    "data2vec-vision": "relative positions",
    "wavlm": "gated relative positions",
    "wav2vec2-conformer": "relative positions",
    "sew-d": "disentangled content and position terms",
    "vits": "relative positions in a window",
}
SINKS = frozenset({"openai_privacy_filter"})
# encoders whose tokens see only those before them, though nothing is cached
CAUSAL = frozenset(
    {
        "aimv2_text_model",
        "clip_text_model",
        "clipseg_text_model",
        "groupvit_text_model",
        "metaclip_2_text_model",
        "owlv2_text_model",
        "owlvit_text_model",
        "timesfm",
        "timesfm2_5",
        "videoprism_text_model",
        "xclip_text_model",
    }
)


def is_decoder(keys: Keys) -> bool:
    """True where a BERT-like config is switched to a causal decoder."""
    stated = keys.flag("is_decoder")
    return stated.value if stated is not None else keys.model_type == "blip_text_model"


def read(config: Config) -> tuple[LayerGroup, ...]:
    return read_encoder(config.text)


def read_encoder(keys: Keys) -> tuple[LayerGroup, ...]:
    """Groups of one plain encoder: one for each window in use."""
    shape = shape_of(keys)
    if is_decoder(keys):
        return causal_groups(keys, shape)
    notes = notes_of(keys)
    sinks = keys.model_type in SINKS
    groups = windowed_groups(keys, shape, notes)
    alibi = has_alibi(keys) or keys.has("alibi_starting_size")  # Jina's and Mosaic's BERT
    return tuple(
        msgspec.structs.replace(group, sinks=sinks, alibi=alibi and group.kind != "none")
        for group in groups
    )


def causal_groups(keys: Keys, shape: Shape) -> tuple[LayerGroup, ...]:
    """A BERT-like decoder, with cross-attention where `add_cross_attention` asks for it."""
    own = group_of(shape, "full")
    if keys.is_true("add_cross_attention") or keys.model_type == "blip_text_model":
        return (own, group_of(shape, "cross"))
    return (own,)


def windowed_groups(
    keys: Keys, shape: Shape, notes: dict[str, Any] | None = None, stack: Any = None
) -> tuple[LayerGroup, ...]:
    """encoder_self groups, local layers apart from those that see everything."""
    depth = shape.layers or 0
    slots = slots_of(keys, ["encoder"] * depth, {})
    demands = zip(layer_windows(keys, depth), layer_forms(keys, depth), slots, strict=True)
    members: dict[tuple[TwoSided | None, Form, Slot], list[int]] = {}
    for layer, demand in enumerate(demands):
        members.setdefault(demand, []).append(layer)
    plain = group_of(shape, notes=notes, stack=stack, softcap=softcap_of(keys))
    return in_order(
        msgspec.structs.replace(
            formed(keys, seen_through(varied(plain, slot), window), form), layers=tuple(layers)
        )
        for (window, form, slot), layers in members.items()
    )


def softcap_of(keys: Keys) -> float | None:
    """The cap of the scores, in audio encoders that state one."""
    names = ("attention_logit_cap", "conf_attention_logit_cap", "attn_logit_softcapping")
    given = keys.number(*names)
    if given is None and not keys.has(*names) and (assumed := keys.default(*names)):
        return float(assumed.value)
    return given.value if given is not None and given.value > 0 else None


def formed(keys: Keys, group: LayerGroup, form: Form) -> LayerGroup:
    if form == "convolution":
        return LayerGroup(kind="none", layers=(), stack=group.stack)
    if form == "square":
        return msgspec.structs.replace(group, notes=group.notes | square_notes(keys))
    return group


def seen_through(group: LayerGroup, window: TwoSided | None) -> LayerGroup:
    """The group with a two-sided window, or as it is."""
    if window is None:
        return group
    return msgspec.structs.replace(
        group,
        window=window.width,
        window_right=window.side,
        notes=group.notes | {"window_sides": [window.side, window.side]},
        sources=group.sources | {"window": window.source},
    )


def notes_of(keys: Keys) -> dict[str, Any]:
    """Facts of the family that no field holds."""
    notes: dict[str, Any] = {}
    bias = RELATIVE_BIAS.get(keys.model_type or "")
    if bias:
        notes["score_bias"] = bias
    if keys.model_type in CAUSAL:
        notes["mask"] = "causal, without a cache"
    pattern = keys.raw("attention_type") if keys.model_type == "big_bird" else None
    if pattern is not None and pattern.value != "original_full":
        notes["attention_type"] = pattern.value
    return notes


def shape_of(keys: Keys) -> Shape:
    """Sizes of the stack, with the corrections that some families need."""
    correct = CORRECTIONS.get(keys.model_type or "")
    return complete(keys) if correct is None else correct(keys)


def convbert(keys: Keys) -> Shape:
    """Half of the heads attend, the other half convolve; the head size is that of all heads."""
    shape = complete(keys)
    ratio = keys.count_or_default("head_ratio")
    heads = max(1, (shape.num_heads or 1) // (ratio.value if ratio else 2))
    return msgspec.structs.replace(shape, num_heads=heads, num_kv_heads=heads)


def funnel(keys: Keys) -> Shape:
    """Layers are those of all blocks, each as often as it repeats, and of the decoder."""
    blocks = per_stage(keys, "block_sizes")
    repeats = per_stage(keys, "block_repeats")
    if blocks is None:
        raise keys.missing("list of block sizes", "block_sizes")
    times = repeats.value if repeats else (1,) * len(blocks.value)
    decoder = keys.count_or_default("num_decoder_layers")
    layers = sum(size * n for size, n in zip(blocks.value, times, strict=False))
    total = layers + (decoder.value if decoder else 0)
    shape = msgspec.structs.replace(read_shape(keys), layers=total)
    return checked(shape, keys)


def bridgetower(keys: Keys) -> Shape:
    """Heads of the vision part are always 64 wide."""
    hidden = keys.count_or_default("hidden_size")
    if hidden is None:
        raise keys.missing("width", "hidden_size")
    heads = hidden.value // 64
    shape = read_shape(keys)
    shape = msgspec.structs.replace(shape, num_heads=heads, num_kv_heads=heads, head_size=64)
    return checked(shape, keys)


CORRECTIONS = {
    "bridgetower_vision_model": bridgetower,
    "convbert": convbert,
    "funnel": funnel,
}
