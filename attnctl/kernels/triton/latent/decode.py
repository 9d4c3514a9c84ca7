"""The absorbed form over a paged cache: one KV head, the keys cut in segments."""

from __future__ import annotations

import triton
import triton.language as tl

from attnctl.kernels.triton.latent.tile import attend_rows, find_sequence, load_query, store_state


@triton.jit
def mla_decode_kernel(
    Q,
    LATENT,
    ROPE,
    OUT,
    LSE,
    TABLE,
    STARTS,
    LENGTHS,
    PART,
    PART_LSE,
    stride_qt,
    stride_qh,
    stride_ln,
    stride_lp,
    stride_rn,
    stride_rp,
    stride_ot,
    stride_oh,
    stride_st,
    stride_sh,
    stride_table,
    factor,
    v_scale,
    sequences,
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
    """Grid: (T, parts of BLOCK_M heads, segments). Query tokens see what is at or before them."""
    token = tl.program_id(0).to(tl.int64)
    segment = tl.program_id(2)
    segments = tl.num_programs(2)
    if token >= tl.load(STARTS + sequences):
        return
    sequence = find_sequence(STARTS, token, sequences)
    last = tl.load(STARTS + sequence + 1)
    hi = (tl.load(LENGTHS + sequence) - last + token + 1).to(tl.int32)
    head = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    real = head < HEADS
    rows_q = token * stride_qt + head.to(tl.int64) * stride_qh
    q, q_rope = load_query(Q, rows_q, real, L, L_BLOCK, R, R_BLOCK, INTERPRET)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, L_BLOCK], tl.float32)
    table = TABLE + sequence.to(tl.int64) * stride_table
    tiles = tl.maximum(tl.cdiv(tl.cdiv(hi, TILE), segments), least_tiles)
    begin = segment * tiles * TILE
    end = tl.minimum(begin + tiles * TILE, hi)
    for start in range(begin, end, TILE):
        key = start + tl.arange(0, TILE)
        seen = key < end
        page = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64)
        row = (key % PAGE).to(tl.int64)
        acc, top, total = attend_rows(
            Q, rows_q, real, q, q_rope, acc, top, total, LATENT, ROPE, None,
            page * stride_ln + row * stride_lp, page * stride_rn + row * stride_rp, row, seen,
            factor, TILE, L, L_BLOCK, R, R_BLOCK, FORMAT, PRECISION,
        )  # fmt: skip
    store_state(
        OUT, LSE, PART, PART_LSE, acc, top, total, token, head, real,
        stride_ot, stride_oh, stride_st, stride_sh, v_scale, segment, segments,
        HEADS, L, L_BLOCK, SPLIT,
    )  # fmt: skip
