"""Encoders whose config states its sizes in a way of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from attnctl.model.keys import LAYER_LIMIT, Keys, Value, sources
from attnctl.model.nesting import Config
from attnctl.model.shape import GENERIC, Names, Shape, checked, complete, group_of, read_shape
from attnctl.model.spec import LayerGroup

Groups = tuple[LayerGroup, ...]


def read(config: Config) -> Groups:
    groups = PECULIAR[config.text.model_type or ""](config.text)
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
    kinds = keys.items("gnn_layers_types") or keys.default("gnn_layers_types")
    if kinds is None:
        raise keys.missing("list of layer kinds", "gnn_layers_types")
    shape = msgspec.structs.replace(read_shape(keys), layers=len(kinds.value))
    shape = checked(shape, keys)
    across = [i for i, kind in enumerate(kinds.value) if kind == "cross"]
    own = [i for i, kind in enumerate(kinds.value) if kind != "cross"]
    return group_of(shape, layers=own), group_of(shape, "cross", layers=across)


def one_pooling(keys: Keys) -> Groups:
    """One cross-attention from pooled patches to the patches that they stand for."""
    shape = checked(msgspec.structs.replace(read_shape(keys), layers=1), keys)
    return (group_of(shape, "cross"),)


def each_also_crosses(keys: Keys) -> Groups:
    """Every layer sees its own side, then the other: two images, or image and prompt."""
    shape = complete(keys)
    return group_of(shape), group_of(shape, "cross")


def qformer(keys: Keys) -> Groups:
    """Queries see one another in every layer, and the image in every n-th, the first included."""
    shape = complete(keys)
    every = need(keys, "rhythm of the cross-attention", "cross_attention_frequency").value
    across = range(0, shape.layers or 0, every)
    return group_of(shape), group_of(shape, "cross", layers=across)


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
    "efficientloftr": each_also_crosses,
    "fastspeech2_conformer": fastspeech2,
    "instructblip_qformer": qformer,
    "instructblipvideo_qformer": qformer,
    "lightglue": each_also_crosses,
    "lxmert": lxmert,
    "mllama_vision_model": mllama_vision,
    "molmo2_adapter": one_pooling,
    "perceiver": perceiver,
    "sam3_detr_decoder": each_also_crosses,
    "sam3_detr_encoder": each_also_crosses,
    "sam3_geometry_encoder": each_also_crosses,
    "sam3_lite_text_detr_decoder": each_also_crosses,
    "sam3_lite_text_detr_encoder": each_also_crosses,
    "sam3_lite_text_geometry_encoder": each_also_crosses,
    "superglue": superglue,
    "videoprism_vision_model": space_and_time,
}
