"""Models with nothing to select for, and models whose layers no backend computes: each says why."""

from __future__ import annotations

from typing import NoReturn

from attnctl.exits import InputError
from attnctl.model.encoders import read as read_encoder
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup

_UNSIZED = "convolutions with single attention blocks that the file does not size"
OTHER_MATHEMATICS = {
    "autoformer": "auto-correlation in place of attention",
    "chameleon_vqgan": _UNSIZED,
    "emu3_vqgan": _UNSIZED,
    "glm_image_vqmodel": _UNSIZED,
    "informer": "sparse attention over the most telling queries",
    "janus_vqgan": _UNSIZED,
    "mobilevitv2": "separable linear attention without heads",
    "mra": "multi-resolution attention over picked blocks",
    "nystromformer": "attention through landmarks (Nystrom)",
    "reformer": "attention inside hash buckets",
    "swiftformer": "additive attention without heads",
    "yoso": "attention by hashed sampling",
}


class NoLayersError(InputError):
    """The model has nothing that an attention or state backend would run."""


def no_layers(config: Config) -> NoReturn:
    kind = config.text.model_type or "this model"
    raise NoLayersError(
        f"{config.text.ledger.file}: {kind} has no attention or state layers: "
        "there is no backend to pick for it"
    )


def other_mathematics(config: Config) -> NoReturn:
    kind = config.text.model_type or ""
    raise InputError(
        f"{config.text.ledger.file}: {kind} uses {OTHER_MATHEMATICS[kind]}, which no backend here "
        "computes: run it with its own modelling code"
    )


def patch_mixer(config: Config) -> tuple[LayerGroup, ...]:
    """PatchTSMixer mixes by MLPs, and attends only where `self_attn` is on."""
    if not config.text.is_true("self_attn"):
        no_layers(config)
    return read_encoder(config)
