"""Encoders whose config states its sizes in a way of its own."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from attnctl.model.keys import LAYER_LIMIT, Keys, Value, sources
from attnctl.model.shape import GENERIC, Names, Shape, checked, complete, group_of, read_shape
from attnctl.model.spec import LayerGroup

Groups = tuple[LayerGroup, ...]


def need(keys: Keys, what: str, *names: str) -> Value[int]:
    found = keys.count(*names, limit=LAYER_LIMIT) or keys.count_or_default(*names)
    if found is None:
        raise keys.missing(what, *names)
    return found


def lxmert(keys: Keys) -> Groups:
    """Language layers, vision layers, and layers in which the two see each other and themselves."""
    shape = complete(keys, LXMERT)
    parts = {name: need(keys, f"{name}_layers", f"{name}_layers").value for name in ("r", "x")}
    vision, both = (range(parts["r"]), range(parts["x"]))
    return (
        group_of(shape, notes={"part": "language"}),
        group_of(shape, layers=vision, notes={"part": "vision"}),
        group_of(shape, layers=both, notes={"part": "cross-modality, each side on itself"}),
        group_of(shape, "cross", layers=both),
    )


LXMERT = msgspec.structs.replace(GENERIC, layers=("l_layers",))


def perceiver(keys: Keys) -> Groups:
    """Latents that look at the input once per block, then at themselves."""
    latents = need(keys, "latent width", "d_latents")
    own = need(keys, "self-attention heads", "num_self_attention_heads")
    across = need(keys, "cross-attention heads", "num_cross_attention_heads")
    layers = need(keys, "self-attention layers", "num_self_attends_per_block")
    blocks = need(keys, "blocks", "num_blocks")
    width = keys.count("qk_channels") or latents
    shape = sized(layers, own, width)
    cross = sized(blocks, across, width)
    repeated = msgspec.structs.replace(shape, layers=layers.value * blocks.value)
    return group_of(repeated), group_of(cross, "cross")


def sized(layers: Value[int], heads: Value[int], width: Value[int]) -> Shape:
    size = Value(width.value // heads.value, f"{width.source} / {heads.source}")
    return Shape(
        layers=layers.value,
        num_heads=heads.value,
        num_kv_heads=heads.value,
        head_size=size.value,
        sources=sources(layers=layers, num_heads=heads, num_kv_heads=heads, head_size=size),
    )


def superglue(keys: Keys) -> Groups:
    """Layers alternate between one image and the other."""
    kinds = keys.items("gnn_layers_types")
    if kinds is None:
        raise keys.missing("list of layer kinds", "gnn_layers_types")
    shape = msgspec.structs.replace(read_shape(keys), layers=len(kinds.value))
    shape = checked(shape, keys)
    across = [i for i, kind in enumerate(kinds.value) if kind == "cross"]
    own = [i for i, kind in enumerate(kinds.value) if kind != "cross"]
    return group_of(shape, layers=own), group_of(shape, "cross", layers=across)


def each_also_crosses(keys: Keys) -> Groups:
    """Every layer sees its own image, then the other."""
    shape = complete(keys)
    return group_of(shape), group_of(shape, "cross")


def qformer(keys: Keys) -> Groups:
    """Queries see one another in every layer, and the image in every n-th, the first included."""
    shape = complete(keys)
    every = need(keys, "rhythm of the cross-attention", "cross_attention_frequency").value
    across = range(0, shape.layers or 0, every)
    return group_of(shape), group_of(shape, "cross", layers=across)


def mask_decoder(keys: Keys) -> Groups:
    """SAM's two-way decoder: points see themselves, then points and image see each other."""
    shape = complete(keys)
    rate = need(keys, "reduction of the cross-attention", "attention_downsample_rate")
    across = msgspec.structs.replace(shape, head_size=max(1, (shape.head_size or 1) // rate.value))
    return group_of(shape), group_of(across, "cross", notes={"directions": 2})


def space_and_time(keys: Keys) -> Groups:
    """VideoPrism: layers over space, layers over time, and layers for the features of a clip."""
    names = ("num_spatial_layers", "num_temporal_layers", "num_auxiliary_layers")
    layers = [need(keys, name.replace("_", " "), name).value for name in names]
    shape = msgspec.structs.replace(read_shape(keys), layers=sum(layers))
    notes = dict(zip(("spatial", "temporal", "auxiliary"), layers, strict=True))
    return (group_of(checked(shape, keys), notes=notes),)


def mllama_vision(keys: Keys) -> Groups:
    """Local layers per tile, then global ones over all tiles."""
    shape = complete(keys)
    globals_ = need(keys, "global layers", "num_global_layers").value
    total = (shape.layers or 0) + globals_
    return (group_of(msgspec.structs.replace(shape, layers=total), notes={"global": globals_}),)


def streaming(keys: Keys) -> Groups:
    """Causal layers with a window, whose cache lets sound be encoded as it comes in."""
    shape = complete(keys)
    window = keys.count_or_default("sliding_window")
    if window is None:
        return (group_of(shape, "full"),)
    return (group_of(shape, "sliding", window=window.value),)


def moonshine_streaming(keys: Keys) -> Groups:
    """A window for each layer: so many frames back, so many ahead."""
    shape = complete(keys)
    pairs = keys.items("sliding_windows")
    if pairs is None or len(pairs.value) < (shape.layers or 0):
        raise keys.missing("list of windows, one for each layer", "sliding_windows")
    members: dict[tuple[int, int], list[int]] = {}
    for layer, pair in enumerate(list(keys.each(pairs))[: shape.layers]):
        members.setdefault(two_counts(keys, pair), []).append(layer)
    return tuple(
        group_of(
            shape,
            layers=layers,
            window=left + right,
            window_right=right,
            notes={"window_sides": [left, right]},
        )
        for (left, right), layers in members.items()
    )


def two_counts(keys: Keys, pair: Value[object]) -> tuple[int, int]:
    value = pair.value
    if not isinstance(value, list) or len(value) != 2:
        raise keys.wrong(pair, "a pair of window sides")
    left, right = value
    if not (isinstance(left, int) and isinstance(right, int) and left > 0 and right >= 0):
        raise keys.wrong(pair, "a pair of window sides")
    return left, right


def conformer_lookback(keys: Keys) -> Groups:
    """Chunks that look back over a window and ahead inside their own chunk only."""
    shape = complete(keys)
    window = keys.count_or_default("sliding_window")
    notes = {} if window is None else {"left_context": window.value - 1}
    return (group_of(shape, notes=notes),)


def maskformer(keys: Keys) -> Groups:
    """The DETR decoder that it carries under decoder_config."""
    inner = keys.sub("decoder_config")
    decoder = (inner or keys).of_type("detr")
    shape = complete(decoder, MASKFORMER)
    return group_of(shape, stack="decoder"), group_of(shape, "cross", stack="decoder")


MASKFORMER = Names(
    layers=("decoder_layers", "num_hidden_layers"),
    heads=("decoder_attention_heads", "num_attention_heads"),
    kv_heads=(),
    head_size=(),
    hidden=("d_model", "hidden_size"),
)

PECULIAR: dict[str, Callable[[Keys], Groups]] = {
    "blip_2_qformer": qformer,
    "edgetam_mask_decoder": mask_decoder,
    "edgetam_video_mask_decoder": mask_decoder,
    "efficientloftr": each_also_crosses,
    "instructblip_qformer": qformer,
    "instructblipvideo_qformer": qformer,
    "lightglue": each_also_crosses,
    "lxmert": lxmert,
    "maskformer": maskformer,
    "mimi": streaming,
    "mimi_decoder": streaming,
    "mimi_encoder": streaming,
    "mllama_vision_model": mllama_vision,
    "moonshine_streaming_encoder": moonshine_streaming,
    "nemotron_asr_streaming_encoder": conformer_lookback,
    "perceiver": perceiver,
    "pocket_tts_audio_tokenizer": streaming,
    "pocket_tts_audio_tokenizer_decoder": streaming,
    "pocket_tts_audio_tokenizer_encoder": streaming,
    "sam2_mask_decoder": mask_decoder,
    "sam2_video_mask_decoder": mask_decoder,
    "sam3_detr_decoder": each_also_crosses,
    "sam3_lite_text_detr_decoder": each_also_crosses,
    "sam3_lite_text_mask_decoder": mask_decoder,
    "sam3_mask_decoder": mask_decoder,
    "sam3_tracker_mask_decoder": mask_decoder,
    "sam3_tracker_video_mask_decoder": mask_decoder,
    "sam_hq_mask_decoder": mask_decoder,
    "sam_mask_decoder": mask_decoder,
    "superglue": superglue,
    "videoprism_vision_model": space_and_time,
    "voxtral_realtime_encoder": streaming,
}
