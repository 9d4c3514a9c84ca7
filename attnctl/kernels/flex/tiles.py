"""Tiles of flex_attention's GPU kernel: they divide its blocks and fit the device's memory.

torch's own defaults want blocks of 128 tokens, and are sized for the largest GPUs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Tiles = tuple[int, int, int]
"""Rows of a query tile, keys of a tile, stages of the loads; 0 stages: as many as torch takes."""

MOST_STAGES = 3
LEAST_SHARED = 96 << 10
"""Bytes of shared memory where the device does not say: what every GPU since sm_86 has."""


def tiles_of(query: Tensor, value: Tensor, size: int) -> Tiles:
    """For query [W, H, Q, D], value [1, Hk, M * P, Dv] and pages of `size` tokens.

    A tile of 16 keys divides every page that the backend takes.
    """
    return fitted(
        query.shape[2], _padded(query.shape[3]), _padded(value.shape[3]), size,
        query.element_size(), _shared_bytes(query.device),
    )  # fmt: skip


def fitted(
    rows: int, width: int, width_v: int, size: int, itemsize: int, shared_bytes: int | None
) -> Tiles:
    """shared_bytes None: a device whose number of stages is torch's affair (AMD, Intel)."""
    # a tile's accumulator is rows * width_v float32 in registers
    tall = min(rows, 64 if max(width, width_v) * itemsize <= 1024 else 32)
    most = 64 if max(width, width_v) <= 128 else 32
    for columns in (64, 32, 16):
        if columns > most or size % columns:
            continue
        if shared_bytes is None:
            return tall, columns, 0
        stage = columns * (width + width_v) * itemsize
        stages = min(MOST_STAGES, (shared_bytes - tall * width * itemsize) // stage)
        if stages >= 1 and (stages > 1 or columns == 16):
            return tall, columns, stages
    return tall, 16, 1 if shared_bytes is not None else 0


def options(tiles: Tiles) -> dict[str, Any]:
    """torch's kernel_options for these tiles."""
    rows, columns, stages = tiles
    told = {"BLOCK_M": rows, "BLOCK_N": columns, "FORCE_USE_FLEX_ATTENTION": True}
    return told if stages == 0 else {**told, "num_stages": stages}


def _padded(width: int) -> int:
    """The kernel rounds widths up to a power of two."""
    return 1 << (width - 1).bit_length()


def _shared_bytes(device: torch.device) -> int | None:
    if device.type != "cuda" or torch.version.hip is not None:
        return None
    found = torch.cuda.get_device_properties(device)
    return getattr(found, "shared_memory_per_block_optin", LEAST_SHARED)
