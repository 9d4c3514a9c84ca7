"""Encoders whose config states its sizes in a way of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from attnctl.model.keys import LAYER_LIMIT, Keys, Value, sources
from attnctl.model.nesting import Config
from attnctl.model.shape import (
    GENERIC,
    Names,
    Shape,
    bounded,
    checked,
    complete,
    group_of,
    read_shape,
)
from attnctl.model.spec import LayerGroup

Groups = tuple[LayerGroup, ...]


def read(config: Config) -> Groups:
    keys = config.innermost(PECULIAR)
    groups = PECULIAR[keys.model_type or ""](keys)
    return tuple(group for group in groups if group.layers)


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
    width = keys.count("qk_channels")
    shape = sized(layers, own, width or latents)
    outward = keys.text("cross_attention_shape_for_attention")
    takes_input = outward is None or outward.value == "kv"
    cross = sized(
        blocks, across, width or (keys.count("d_model") if takes_input else None) or latents
    )
    repeated = bounded(msgspec.structs.replace(shape, layers=layers.value * blocks.value), keys)
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
    kinds = keys.items("gnn_layers_types") or keys.default("gnn_layers_types")
    if kinds is None:
        raise keys.missing("list of layer kinds", "gnn_layers_types")
    shape = msgspec.structs.replace(read_shape(keys), layers=len(kinds.value))
    shape = checked(shape, keys)
    across = [i for i, kind in enumerate(kinds.value) if kind == "cross"]
    own = [i for i, kind in enumerate(kinds.value) if kind != "cross"]
    return group_of(shape, layers=own), group_of(shape, "cross", layers=across)


def one_cross(keys: Keys) -> Groups:
    """One cross-attention: pooled patches to those they stand for, or pixels to the prompt."""
    shape = checked(msgspec.structs.replace(read_shape(keys), layers=1), keys)
    return (group_of(shape, "cross"),)


def each_also_crosses(keys: Keys) -> Groups:
    """Every layer sees its own side, then the other: two images, or image and prompt."""
    shape = complete(keys)
    return group_of(shape), group_of(shape, "cross")


def canine(keys: Keys) -> Groups:
    """Twelve layers over shortened text, between two over characters in blocks."""
    shape = complete(keys)
    block = keys.count_or_default("local_transformer_stride")
    notes = {"part": "characters", "block": block.value if block else None}
    return group_of(shape), group_of(shape, layers=(0, 1), notes=notes)


def timesformer(keys: Keys) -> Groups:
    """Divided attention: each layer attends over time, then over space."""
    shape = complete(keys)
    kind = keys.text("attention_type")
    if kind is not None and kind.value != "divided_space_time":
        return (group_of(shape),)
    return group_of(shape, notes={"over": "space"}), group_of(shape, notes={"over": "time"})


def vjepa2(keys: Keys) -> Groups:
    """The encoder, and the predictor that training adds to it."""
    predictor = read_shape(keys, PREDICTOR)
    if not (predictor.layers and predictor.num_heads and predictor.head_size):
        return (group_of(complete(keys)),)
    return group_of(complete(keys)), group_of(predictor, notes={"part": "predictor"})


PREDICTOR = Names(
    layers=("pred_num_hidden_layers",),
    heads=("pred_num_attention_heads",),
    kv_heads=(),
    head_size=(),
    hidden=("pred_hidden_size",),
)


def repmixer(keys: Keys) -> Groups:
    """MobileCLIP's text model: its first and last layers are convolutions."""
    shape = complete(keys)
    depth = shape.layers or 0
    if keys.is_false("use_repmixer_blocks") or depth < 3:
        return (group_of(shape),)
    ends = LayerGroup(kind="none", layers=(0, depth - 1))
    return group_of(shape, layers=range(1, depth - 1)), ends


def qformer(keys: Keys) -> Groups:
    """Queries see one another in every layer, and the image in every n-th, the first included."""
    shape = complete(keys)
    every = need(keys, "rhythm of the cross-attention", "cross_attention_frequency").value
    across = range(0, shape.layers or 0, every)
    return group_of(shape), group_of(shape, "cross", layers=across)


def space_and_time(keys: Keys) -> Groups:
    """VideoPrism: layers over space, then layers over time."""
    names = ("num_spatial_layers", "num_temporal_layers")
    space, time = (need(keys, name.replace("_", " "), name).value for name in names)
    shape = checked(msgspec.structs.replace(read_shape(keys), layers=space + time), keys)
    return (
        group_of(shape, layers=range(space), notes={"over": "space"}),
        group_of(shape, layers=range(space, space + time), notes={"over": "time"}),
    )


def mllama_vision(keys: Keys) -> Groups:
    """Local layers per tile, then global ones over all tiles."""
    shape = complete(keys)
    globals_ = need(keys, "global layers", "num_global_layers").value
    total = (shape.layers or 0) + globals_
    whole = bounded(msgspec.structs.replace(shape, layers=total), keys)
    return (group_of(whole, notes={"global": globals_}),)


def fastspeech2(keys: Keys) -> Groups:
    """Encoder and decoder both see everything at once; nothing crosses over."""
    return tuple(
        group_of(complete(keys, names), stack=stack) for stack, names in FASTSPEECH.items()
    )


def prefixed(stack: str) -> Names:
    return Names(
        layers=(f"{stack}_layers",),
        heads=(f"{stack}_num_attention_heads",),
        kv_heads=(),
        head_size=(),
        hidden=("hidden_size",),
    )


FASTSPEECH: dict[Literal["encoder", "decoder"], Names] = {
    "encoder": prefixed("encoder"),
    "decoder": prefixed("decoder"),
}
PECULIAR: dict[str, Callable[[Keys], Groups]] = {
    "blip_2_qformer": qformer,
    "canine": canine,
    "efficientloftr": each_also_crosses,
    "fastspeech2_conformer": fastspeech2,
    "instructblip_qformer": qformer,
    "instructblipvideo_qformer": qformer,
    "lightglue": each_also_crosses,
    "lxmert": lxmert,
    "mllama_vision_model": mllama_vision,
    "molmo2_adapter": one_cross,
    "perceiver": perceiver,
    "sam3_detr_decoder": each_also_crosses,
    "sam3_detr_encoder": each_also_crosses,
    "sam3_geometry_encoder": each_also_crosses,
    "sam3_lite_text_detr_decoder": each_also_crosses,
    "sam3_lite_text_detr_encoder": each_also_crosses,
    "sam3_lite_text_geometry_encoder": each_also_crosses,
    "sam3_lite_text_mask_decoder": one_cross,
    "sam3_lite_text_text_model": repmixer,
    "sam3_mask_decoder": one_cross,
    "superglue": superglue,
    "timesformer": timesformer,
    "videoprism_vision_model": space_and_time,
    "vjepa2": vjepa2,
}
