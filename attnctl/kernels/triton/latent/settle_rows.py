"""What stands before and behind a library's kernel of latent attention, in one launch each."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.latent.launch import run
from attnctl.kernels.triton.launch import Launch


@triton.jit
def name_slots_kernel(
    SLOTS,
    NAMED,
    COUNT,
    stride_slots,
    total,
    PLACES: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid: query tokens. NAMED: [T, WIDTH], dense, -1 for what is no row; COUNT: [T]."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    found = tl.zeros([BLOCK], dtype=tl.int32)
    for first in range(0, WIDTH, BLOCK):
        place = first + column
        slot = tl.load(SLOTS + token * stride_slots + place, mask=place < PLACES, other=-1)
        valid = (slot >= 0) & (slot < total)
        tl.store(NAMED + token * WIDTH + place, tl.where(valid, slot, -1), mask=place < WIDTH)
        found += valid.to(tl.int32)
    tl.store(COUNT + token, tl.sum(found, 0))


@triton.jit
def settle_rows_kernel(
    FOUND,
    TOP,
    OUT,
    LSE,
    STARTS,
    COUNT,
    stride_ft,
    stride_fh,
    stride_tt,
    stride_th,
    stride_ot,
    stride_oh,
    stride_lt,
    stride_lh,
    factor,
    sequences,
    HEADS: tl.constexpr,
    L: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    COUNTED: tl.constexpr,
    WITH_LSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid: query tokens, pieces of H * L. A token of no sequence is left alone."""
    token = tl.program_id(0).to(tl.int64)
    piece = tl.program_id(1)
    if token >= tl.load(STARTS + sequences):
        return
    seen = token >= 0
    if COUNTED:
        seen = tl.load(COUNT + token) > 0
    column = piece * BLOCK + tl.arange(0, BLOCK)
    inside = column < HEADS * L
    head, lane = column // L, column % L
    at = FOUND + token * stride_ft + head * stride_fh + lane
    found = tl.load(at, mask=inside & seen, other=0).to(tl.float32) * factor
    at = OUT + token * stride_ot + head * stride_oh + lane
    tl.store(at, found.to(OUT.dtype.element_ty), mask=inside)
    if WITH_LSE:
        row = tl.arange(0, HEAD_BLOCK)
        there = (row < HEADS) & (piece == 0)
        top = tl.load(TOP + token * stride_tt + row * stride_th, mask=there & seen, other=0)
        top = tl.where(seen, top, -float("inf"))
        tl.store(LSE + token * stride_lt + row * stride_lh, top, mask=there)


def name_launch(slots: Tensor, total: int, named: Tensor, count: Tensor) -> Launch:
    """slots: [T, K], its last dimension dense; named: [T, >= K] dense; count: [T]. All int32."""
    width = named.shape[1]
    return Launch(
        name_slots_kernel,
        (slots.shape[0],),
        (slots, named, count, slots.stride(0), total),
        {
            "PLACES": slots.shape[1],
            "WIDTH": width,
            "BLOCK": min(1024, triton.next_power_of_2(max(width, 16))),
            "num_warps": 4,
        },
    )


def name_slots(slots: Tensor, total: int, width: int) -> tuple[Tensor, Tensor]:
    """attnctl.kernels.latent.tokens.name_slots."""
    slots = slots if slots.stride(-1) == 1 else slots.contiguous()
    named = slots.new_empty(slots.shape[0], width)
    count = slots.new_empty(slots.shape[0])
    run(name_launch(slots, total, named, count))
    return named, count


def settle_launch(
    found: Tensor,
    top: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
    starts: Tensor,
    count: Tensor | None,
    factor: float,
) -> Launch:
    """found, out: [T, H, L], the last dimension dense; top, lse: [T, H]; count: [T] int32."""
    tokens, heads, width = out.shape
    block = min(4096, triton.next_power_of_2(heads * width))
    tops = (0, 0) if top is None else top.stride()
    lses = (0, 0) if lse is None else lse.stride()
    return Launch(
        settle_rows_kernel,
        (tokens, triton.cdiv(heads * width, block)),
        (
            *(found, top, out, lse, starts, count),
            *found.stride()[:2],
            *tops,
            *out.stride()[:2],
            *lses,
            factor,
            starts.shape[0] - 1,
        ),
        {
            "HEADS": heads,
            "L": width,
            "HEAD_BLOCK": triton.next_power_of_2(heads),
            "COUNTED": count is not None,
            "WITH_LSE": lse is not None,
            "BLOCK": block,
            "num_warps": 4,
        },
    )


def settle(
    found: Tensor,
    top: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
    starts: Tensor,
    count: Tensor | None,
    factor: float,
) -> None:
    """attnctl.kernels.latent.tokens.settle."""
    if found.stride(-1) != 1:
        found = found.contiguous()
    run(settle_launch(found, top, out, lse, starts, count, factor))
