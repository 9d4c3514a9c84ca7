"""Rows copied to their slots of a paged cache: the end of every write of latent attention."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.latent.rows import FP8
from attnctl.kernels.triton.latent.launch import run
from attnctl.kernels.triton.launch import Launch


@triton.jit
def scatter_rows_kernel(
    ROWS,
    CACHE,
    SLOTS,
    stride_row,
    stride_n,
    stride_p,
    PAGE: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid: slots. A negative slot is a padding token."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(SLOTS + token).to(tl.int64)
    if slot < 0:
        return
    at = slot // PAGE * stride_n + slot % PAGE * stride_p
    column = tl.arange(0, BLOCK)
    keep = column < WIDTH
    value = tl.load(ROWS + token * stride_row + column, mask=keep, other=0)
    tl.store(CACHE + at + column, value, mask=keep)


def scatter_launch(rows: Tensor, cache: Tensor, slots: Tensor) -> Launch:
    """rows: [>= S, C], cache: [N, P, C] of the same dtype, slots: [S] int64, dense."""
    if cache.dtype in FP8:
        rows, cache = rows.view(torch.uint8), cache.view(torch.uint8)
    width = cache.shape[2]
    return Launch(
        scatter_rows_kernel,
        (slots.shape[0],),
        (rows, cache, slots, rows.stride(0), cache.stride(0), cache.stride(1)),
        {
            "PAGE": cache.shape[1],
            "WIDTH": width,
            "BLOCK": triton.next_power_of_2(width),
            "num_warps": 1,
        },
    )


def scatter_rows(rows: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Stores each row in its slot; slot -1 and rows past the slots: nothing."""
    if slots.shape[0]:
        run(scatter_launch(rows, cache, slots))
