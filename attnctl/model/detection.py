"""Detection and segmentation transformers (DETR and its kin): queries over image features.

Their decoders see every query at once and cache nothing. Deformable attention samples a few points
instead of attending; those layers are named in the notes, and no group is made of them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from attnctl.model.encdec import DECODER, ENCODER
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.shape import HIDDEN, Names, Shape, checked, group_of, read_shape
from attnctl.model.spec import LayerGroup

Form = Literal["plain", "deformable", "wide", "absent"]


class Detector(msgspec.Struct, frozen=True):
    """How a family attends: in its encoder, and from queries to features.

    wide: K holds content and position side by side, twice the width of V.
    spare: decoder layers that the config counts and the model does not have.
    """

    encoder: Form
    cross: Form
    spare: int = 0


DETECTORS: dict[str, Detector] = {
    "conditional_detr": Detector("plain", "wide"),
    "d_fine": Detector("plain", "deformable"),
    "dab-detr": Detector("plain", "wide"),
    "deformable_detr": Detector("deformable", "deformable"),
    "deimv2": Detector("plain", "deformable"),
    "detr": Detector("plain", "plain"),
    "grounding-dino": Detector("deformable", "deformable"),
    "lw_detr": Detector("absent", "deformable"),
    "mask2former": Detector("deformable", "plain", spare=1),
    "mm-grounding-dino": Detector("deformable", "deformable"),
    "omdet-turbo": Detector("plain", "deformable"),
    "oneformer": Detector("deformable", "plain", spare=1),
    "pp_doclayout_v2": Detector("plain", "deformable"),
    "pp_doclayout_v3": Detector("plain", "deformable"),
    "pp_doclayout_v4": Detector("plain", "deformable"),
    "rf_detr": Detector("absent", "deformable"),
    "rt_detr": Detector("plain", "deformable"),
    "rt_detr_v2": Detector("plain", "deformable"),
    "table-transformer": Detector("plain", "plain"),
}
ENCODER_NAMES = Names(
    layers=ENCODER.layers[:1],
    heads=(*ENCODER.heads[:1], "num_attention_heads"),
    kv_heads=(),
    head_size=(),
    hidden=("encoder_hidden_dim", *HIDDEN),
)
DECODER_NAMES = Names(
    layers=(*DECODER.layers, "decoder_num_layers"),
    heads=(
        "decoder_self_attention_heads",
        "decoder_attention_heads",
        "decoder_num_heads",
        "num_attention_heads",
    ),
    kv_heads=(),
    head_size=(),
    hidden=("decoder_hidden_dim", *HIDDEN),
)


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Reads the whole file: the text model inside some of them only names what to look for."""
    keys = config.outermost({*DETECTORS, "maskformer"})
    return maskformer(keys) if keys.model_type == "maskformer" else read_detector(keys)


def read_detector(keys: Keys) -> tuple[LayerGroup, ...]:
    """Groups of plain attention; the notes of the decoder name what samples instead."""
    family = DETECTORS[keys.model_type or ""]
    groups: list[LayerGroup] = []
    if family.encoder == "plain":
        shape = checked(read_shape(keys, ENCODER_NAMES), keys, ENCODER_NAMES)
        groups.append(group_of(shape, stack="encoder"))
    shape = checked(read_shape(keys, DECODER_NAMES), keys, DECODER_NAMES)
    layers = max(1, (shape.layers or 1) - family.spare)
    shape = msgspec.structs.replace(shape, layers=layers)
    groups.append(group_of(shape, stack="decoder", notes=sampling(family)))
    if family.cross != "deformable":
        groups.append(cross_group(shape, family.cross))
    return tuple(groups)


def sampling(family: Detector) -> dict[str, Any]:
    parts = {"encoder": family.encoder, "cross": family.cross}
    sampled = [part for part, form in parts.items() if form == "deformable"]
    return {"deformable": sampled} if sampled else {}


def cross_group(shape: Shape, form: Form) -> LayerGroup:
    group = group_of(shape, "cross", stack="decoder")
    if form == "wide" and shape.head_size is not None:
        size = shape.head_size
        return msgspec.structs.replace(group, head_size=2 * size, head_size_v=size)
    return group


def maskformer(keys: Keys) -> tuple[LayerGroup, ...]:
    """The DETR decoder that MaskFormer carries under decoder_config."""
    inner = keys.sub("decoder_config")
    decoder = (inner or keys).of_type("detr")
    shape = checked(read_shape(decoder, DECODER_NAMES), decoder, DECODER_NAMES)
    return group_of(shape, stack="decoder"), cross_group(shape, "plain")
