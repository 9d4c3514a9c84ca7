"""FP8 rows of a sparse latent cache, packed as FlashMLA reads them: 656 bytes for 512 + 64.

In order: L float8_e4m3fn values, L / 128 float32 scales (each what 128 values are multiplied with),
R bfloat16 values of the rotated part, which stays exact. A layout of bytes is a torch.uint8 tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.exits import InputError

GROUP = 128
"""Columns that share a scale (FlashMLA's sparse FP8 layout)."""

E4M3_MAX = 448.0
"""The largest finite float8_e4m3fn."""


def row_bytes(rank: int, rope: int) -> int:
    """Bytes of one packed row. InputError where the rank is no multiple of 128."""
    if rank % GROUP or rank <= 0:
        raise InputError(f"packed FP8 rows need kv_lora_rank a multiple of {GROUP}; it is {rank}")
    return rank + 4 * (rank // GROUP) + 2 * rope


def pack_rows(latent: Tensor, rope: Tensor) -> Tensor:
    """[T, bytes] uint8 from latent [T, L] and rope [T, R], any float dtype."""
    tokens, rank = latent.shape
    packed = latent.new_empty(tokens, row_bytes(rank, rope.shape[1]), dtype=torch.uint8)
    values, scales = quantize_groups(latent, GROUP)
    packed[:, :rank] = values.view(torch.uint8)
    end = rank + 4 * scales.shape[1]
    packed[:, rank:end] = scales.view(torch.uint8)
    packed[:, end:] = rope.to(torch.bfloat16).contiguous().view(torch.uint8)
    return packed


def unpack_rows(packed: Tensor, rank: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """[..., L + R] in `dtype`, from [..., bytes] uint8 with kv_lora_rank L."""
    groups = rank // GROUP
    end = rank + 4 * groups
    values = packed[..., :rank].contiguous().view(torch.float8_e4m3fn).to(dtype)
    scales = packed[..., rank:end].contiguous().view(torch.float32).to(dtype)
    latent = values.unflatten(-1, (groups, GROUP)) * scales[..., None]
    rope = packed[..., end:].contiguous().view(torch.bfloat16).to(dtype)
    return torch.cat([latent.flatten(-2), rope], dim=-1)


def plain_rows(rows: Tensor, rank: int, dtype: torch.dtype) -> Tensor:
    """[S, L + R] in `dtype` from rows of a cache, packed (uint8) or not."""
    return unpack_rows(rows, rank, dtype) if rows.dtype is torch.uint8 else rows.to(dtype)


def quantize_groups(
    values: Tensor, group: int, power_of_two: bool = False
) -> tuple[Tensor, Tensor]:
    """[T, D] float8_e4m3fn and its scales [T, ceil(D / group)] float32.

    A scale maps the largest magnitude of its group to 448; power_of_two: the next power of two
    above that (the format ue8m0). A group of zeros has the scale of 1e-4.
    """
    width = values.shape[1]
    groups = -(-width // group)
    padded = torch.nn.functional.pad(values.float(), (0, groups * group - width))
    parts = padded.unflatten(1, (groups, group))
    peaks = parts.abs().amax(-1).clamp(min=1e-4)
    # by a tensor: a GPU multiplies with the reciprocal of a number, a CPU divides
    scales = peaks / torch.full_like(peaks, E4M3_MAX)
    if power_of_two:
        # exact on every device: the exponent's bits, rounded up
        bits = scales.view(torch.int32) + 0x7FFFFF
        scales = (bits & ~0x7FFFFF).view(torch.float32)
    scaled = (parts / scales[..., None]).clamp(-E4M3_MAX, E4M3_MAX)
    return scaled.flatten(1)[:, :width].contiguous().to(torch.float8_e4m3fn), scales
