"""The knobs of the chunked state kernels, measured on Hopper, as they fit other devices.

Found by attnctl smoke --compile-for: no card of these was there to time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from attnctl.kernels.triton.latent_launch import RDNA, SMALL_BLOCK_BYTES, latent_device


def fitted(knobs: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Knobs by name ("rows", "warps", "stages", each with any prefix) for a tensor's device."""
    if device.type == "cpu":  # interpreted: no tile is too large
        return dict(knobs)
    gpu = latent_device(device)
    if gpu.arch.startswith(RDNA):
        # 256 registers a thread, and operands of the matrix unit that take twice their size
        return _with(knobs, {"channels_warps": 16}, rows=32, warps=8, stages=1)
    if gpu.arch.startswith("gfx"):
        # each further stage is a copy in local memory
        return _with(knobs, {"channels_warps": 4}, stages=1)
    if gpu.shared_memory_bytes <= SMALL_BLOCK_BYTES:
        return _with(knobs, {"channels_warps": 4, "wide_chunk": 32}, stages=2)
    return dict(knobs)


def _with(knobs: Mapping[str, Any], exact: Mapping[str, int], **limits: int) -> dict[str, Any]:
    """The knobs with rows and stages at most, and warps at least, these; some exactly these."""
    found = dict(knobs)
    for name, value in knobs.items():
        kind = name.rpartition("_")[2]
        if name in exact:
            found[name] = exact[name]
        elif kind in limits:
            found[name] = (max if kind == "warps" else min)(value, limits[kind])
    return found
