"""Prefill: one program a query tile, which runs over the keys that the tile sees.

The grid has room for every way that T tokens can fall into B sequences (T / BLOCK_Q + B tiles) and
depends on no length, so it can be captured in a CUDA graph; a program finds its sequence by
bisecting query_start_loc. Tiles run backwards: with a causal mask the longest start first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from attnctl.kernels.triton.paged.tile import (
    attend,
    find_sequence,
    key_bounds,
    load_query,
    store_part,
    tile_rows,
)


# one binary for every number of sequences
@triton.jit(do_not_specialize=["sequences"])
def prefill_kernel(
    Q,
    K,
    V,
    OUT,
    TABLE,
    STARTS,
    LENGTHS,
    SINKS,
    SLOPES,
    RANGES,
    K_SCALES,
    V_SCALES,
    K_DESC,
    K_DESC_HIGH,
    V_DESC,
    V_DESC_HIGH,
    desc_page_k,
    desc_page_v,
    desc_head_row_k,
    desc_head_row_v,
    desc_head_column_k,
    desc_head_column_v,
    stride_qt,
    stride_qh,
    stride_qd,
    stride_kn,
    stride_kp,
    stride_kh,
    stride_kd,
    stride_vn,
    stride_vp,
    stride_vh,
    stride_vd,
    stride_ot,
    stride_oh,
    stride_od,
    stride_table,
    stride_ksn,
    stride_ksp,
    stride_ksh,
    stride_vsn,
    stride_vsp,
    stride_vsh,
    factor,
    cap,
    v_scale,
    window,
    window_right,
    chunk,
    ranges,
    sequences,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    PAGE: tl.constexpr,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    D_LOW: tl.constexpr,
    D_HIGH: tl.constexpr,
    DV: tl.constexpr,
    V_LOW: tl.constexpr,
    V_HIGH: tl.constexpr,
    CAUSAL: tl.constexpr,
    PLAIN: tl.constexpr,
    INTERPRET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Writes out: [T, H, Dv] of every sequence's queries. Grid: (T / BLOCK_Q + B, Hk x parts)."""
    BLOCK_Q: tl.constexpr = BLOCK_M // HEADS
    PARTS: tl.constexpr = (GROUP + HEADS - 1) // HEADS
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1) // PARTS
    group_part = tl.program_id(1) % PARTS
    sequence = find_sequence(STARTS, tile, sequences, BLOCK_Q)
    token_first = tl.load(STARTS + sequence).to(tl.int32)
    q_len = tl.load(STARTS + sequence + 1).to(tl.int32) - token_first
    q_first = (tile - token_first // BLOCK_Q - sequence) * BLOCK_Q
    if q_first >= q_len:
        return
    length = tl.load(LENGTHS + sequence).to(tl.int32)
    if RANGES is not None:
        RANGES += sequence * ranges * 2
    lo, full_lo, full_hi, hi = key_bounds(
        length - q_len + q_first,
        length - q_len + tl.minimum(q_first + BLOCK_Q, q_len) - 1,
        length,
        window,
        window_right,
        chunk,
        RANGES,
        ranges,
        TILE,
        CAUSAL,
    )

    q_index, in_group, real = tile_rows(group_part, q_first, q_len, BLOCK_M, HEADS, GROUP)
    head = kv_head * GROUP + in_group
    position = length - q_len + q_index
    token = (token_first + q_index).to(tl.int64)
    rows_q = token * stride_qt + head.to(tl.int64) * stride_qh
    q, q_high = load_query(Q, rows_q, stride_qd, real, D, D_LOW, D_HIGH, INTERPRET)
    K += kv_head.to(tl.int64) * stride_kh
    V += kv_head.to(tl.int64) * stride_vh
    if K_SCALES is not None:
        K_SCALES += kv_head.to(tl.int64) * stride_ksh
        V_SCALES += kv_head.to(tl.int64) * stride_vsh
    table = TABLE + sequence.to(tl.int64) * stride_table
    slope = None
    if SLOPES is not None:
        slope = tl.load(SLOPES + head, mask=real, other=0.0).to(tl.float32) * 1.4426950408889634
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    if SINKS is not None:
        # a key of value 0 whose logit is the sink
        top = tl.load(SINKS + head, mask=real, other=0.0).to(tl.float32) * 1.4426950408889634
        total = tl.where(top == float("-inf"), 0.0, 1.0)
    acc = tl.zeros([BLOCK_M, V_LOW], tl.float32)
    acc_high = tl.zeros([BLOCK_M, V_HIGH if V_HIGH > 0 else 1], tl.float32)
    desc_row_k = None
    desc_row_v = None
    desc_column_k = None
    desc_column_v = None
    if K_DESC is not None:
        desc_row_k = kv_head * desc_head_row_k
        desc_row_v = kv_head * desc_head_row_v
        desc_column_k = kv_head * desc_head_column_k
        desc_column_v = kv_head * desc_head_column_v
    # tiles with a mask are read by pointers: what lies beyond [lo, hi) may hold anything
    if window is not None or chunk is not None or RANGES is not None:
        acc, acc_high, top, total = attend(
            q,
            q_high,
            acc,
            acc_high,
            top,
            total,
            position,
            slope,
            lo // TILE * TILE,
            full_lo,
            lo,
            hi,
            K,
            V,
            table,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            K_SCALES,
            V_SCALES,
            stride_kn,
            stride_kp,
            stride_kd,
            stride_vn,
            stride_vp,
            stride_vd,
            stride_ksn,
            stride_ksp,
            stride_vsn,
            stride_vsp,
            factor,
            cap,
            window,
            window_right,
            chunk,
            RANGES,
            ranges,
            PAGE,
            TILE,
            D,
            D_LOW,
            D_HIGH,
            DV,
            V_LOW,
            V_HIGH,
            CAUSAL,
            PLAIN,
            True,
            PRECISION,
        )
    acc, acc_high, top, total = attend(
        q,
        q_high,
        acc,
        acc_high,
        top,
        total,
        position,
        slope,
        full_lo,
        full_hi,
        lo,
        hi,
        K,
        V,
        table,
        K_DESC,
        K_DESC_HIGH,
        V_DESC,
        V_DESC_HIGH,
        desc_page_k,
        desc_page_v,
        desc_row_k,
        desc_row_v,
        desc_column_k,
        desc_column_v,
        K_SCALES,
        V_SCALES,
        stride_kn,
        stride_kp,
        stride_kd,
        stride_vn,
        stride_vp,
        stride_vd,
        stride_ksn,
        stride_ksp,
        stride_vsn,
        stride_vsp,
        factor,
        cap,
        window,
        window_right,
        chunk,
        RANGES,
        ranges,
        PAGE,
        TILE,
        D,
        D_LOW,
        D_HIGH,
        DV,
        V_LOW,
        V_HIGH,
        CAUSAL,
        PLAIN,
        False,
        PRECISION,
    )
    acc, acc_high, top, total = attend(
        q,
        q_high,
        acc,
        acc_high,
        top,
        total,
        position,
        slope,
        full_hi,
        hi,
        lo,
        hi,
        K,
        V,
        table,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        K_SCALES,
        V_SCALES,
        stride_kn,
        stride_kp,
        stride_kd,
        stride_vn,
        stride_vp,
        stride_vd,
        stride_ksn,
        stride_ksp,
        stride_vsn,
        stride_vsp,
        factor,
        cap,
        window,
        window_right,
        chunk,
        RANGES,
        ranges,
        PAGE,
        TILE,
        D,
        D_LOW,
        D_HIGH,
        DV,
        V_LOW,
        V_HIGH,
        CAUSAL,
        PLAIN,
        True,
        PRECISION,
    )

    scale = v_scale / tl.where(total > 0.0, total, 1.0)
    rows_o = token * stride_ot + head.to(tl.int64) * stride_oh
    store_part(OUT, rows_o, stride_od, real, acc * scale[:, None], 0, V_LOW, DV)
    if V_HIGH > 0:
        store_part(OUT, rows_o, stride_od, real, acc_high * scale[:, None], V_LOW, V_HIGH, DV)
