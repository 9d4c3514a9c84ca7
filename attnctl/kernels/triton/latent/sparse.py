"""Latent attention over named slots: plain rows or packed FP8 rows, the list cut in segments."""

from __future__ import annotations

import triton
import triton.language as tl

from attnctl.kernels.triton.latent.tile import attend_rows, load_query, store_state


@triton.jit
def mla_sparse_kernel(
    Q,
    LATENT,
    ROPE,
    SCALES,
    SLOTS,
    OUT,
    LSE,
    STARTS,
    PART,
    PART_LSE,
    stride_qt,
    stride_qh,
    stride_ln,
    stride_lp,
    stride_rn,
    stride_rp: tl.constexpr,
    stride_sn,
    stride_sp,
    stride_slots,
    stride_ot,
    stride_oh,
    stride_st,
    stride_sh,
    factor,
    v_scale,
    sequences,
    rows,
    listed,
    least_tiles,
    HEADS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    PAGE: tl.constexpr,
    L: tl.constexpr,
    L_BLOCK: tl.constexpr,
    R: tl.constexpr,
    R_BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    SPLIT: tl.constexpr,
    INTERPRET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid: (T, parts of BLOCK_M heads, segments). Slots below 0 or beyond `rows` are not read."""
    token = tl.program_id(0).to(tl.int64)
    segment = tl.program_id(2)
    segments = tl.num_programs(2)
    if token >= tl.load(STARTS + sequences):
        return
    head = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    real = head < HEADS
    rows_q = token * stride_qt + head.to(tl.int64) * stride_qh
    q, q_rope = load_query(Q, rows_q, real, L, L_BLOCK, R, R_BLOCK, INTERPRET)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, L_BLOCK], tl.float32)
    tiles = tl.maximum(tl.cdiv(tl.cdiv(listed, TILE), segments), least_tiles)
    begin = segment * tiles * TILE
    end = tl.minimum(begin + tiles * TILE, listed)
    for start in range(begin, end, TILE):
        place = start + tl.arange(0, TILE)
        slot = tl.load(SLOTS + token * stride_slots + place, mask=place < end, other=-1)
        seen = (slot >= 0) & (slot < rows)
        slot = tl.where(seen, slot, 0)
        page = (slot // PAGE).to(tl.int64)
        row = (slot % PAGE).to(tl.int64)
        rows_scale = row
        if SCALES is not None:
            rows_scale = page * stride_sn + row * stride_sp
        acc, top, total = attend_rows(
            Q, rows_q, real, q, q_rope, acc, top, total, LATENT, ROPE, SCALES,
            page * stride_ln + row * stride_lp, page * stride_rn + row * stride_rp, rows_scale,
            seen, factor, TILE, L, L_BLOCK, R, R_BLOCK, FORMAT, PRECISION,
        )  # fmt: skip
    store_state(
        OUT, LSE, PART, PART_LSE, acc, top, total, token, head, real,
        stride_ot, stride_oh, stride_st, stride_sh, v_scale, segment, segments,
        HEADS, L, L_BLOCK, SPLIT,
    )  # fmt: skip
