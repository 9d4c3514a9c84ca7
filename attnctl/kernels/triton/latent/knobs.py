"""Knobs of the kernels of latent attention by flat names, as a profile writes them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from attnctl.exits import InputError
from attnctl.kernels.triton.latent.hopper_call import SEGMENT_TILES
from attnctl.kernels.triton.launch import Tiles
from attnctl.tune.settings import check_knobs, refuse_kernel

PORTABLE = "portable"
"""The rival of the Hopper kernel, where that is the usual one."""

NAMES: Mapping[str, int | bool] = MappingProxyType(
    {
        "rows": 16,
        "keys": 32,
        "warps": 4,
        "stages": 2,
        "fill": 1,
        "hopper.boxes": True,
        "hopper.segment_tiles": SEGMENT_TILES,
    }
)
POWERS = ("rows", "keys", "warps")


class LatentKnobs(msgspec.Struct, frozen=True):
    """rows, keys, warps, stages: of the portable kernel's tile, None as its own choice gives them.

    fill: programs a unit until which it cuts the keys. boxes: the Hopper kernel copies tiles of
    dense caches as boxes. segment_tiles: what it takes a program to cost beside its tiles, which
    sets its segments.
    """

    portable: bool = False
    tile: dict[str, int] = {}
    fill: int = 1
    boxes: bool = True
    segment_tiles: int = SEGMENT_TILES

    def tiles(self, usual: Tiles) -> Tiles:
        """The portable kernel's tile, from its own choice."""
        return msgspec.structs.replace(usual, **self.tile) if self.tile else usual


USUAL = LatentKnobs()


def latent_knobs(name: str, knobs: Mapping[str, Any], kernel: str) -> LatentKnobs:
    """InputError: a knob or kernel that there is not, or a value that makes no sense."""
    refuse_kernel(name, kernel, (PORTABLE,))
    found = {knob: int(value) for knob, value in check_knobs(name, knobs, NAMES).items()}
    for knob, value in found.items():
        least = 0 if knob.startswith("hopper.") else 1
        if value < least or (knob in POWERS and value & (value - 1)):
            wanted = "a power of two" if knob in POWERS else f"at least {least}"
            raise InputError(f"{name}: knob {knob} is {value}: must be {wanted}")
    return LatentKnobs(
        portable=kernel == PORTABLE,
        tile={k: found[k] for k in ("rows", "keys", "warps", "stages") if k in found},
        fill=found.get("fill", 1),
        boxes=bool(found.get("hopper.boxes", True)),
        segment_tiles=found.get("hopper.segment_tiles", SEGMENT_TILES),
    )
