"""Decode: the keys of a sequence are cut in segments that run side by side, then reduced.

One program takes all query tokens of a sequence that fit its tile (one, or the few of speculative
decoding) times the heads of a KV head's group, over one segment of the keys. How many keys a
segment has depends on the sequence's length, how many segments there are does not, so the launch
can be captured in a CUDA graph.
"""

from __future__ import annotations

import triton
import triton.language as tl

from attnctl.kernels.triton.paged.tile import attend, key_bounds, load_query, store_part, tile_rows


@triton.jit
def decode_kernel(
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
    PART,
    part_rows,
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
    least_tiles,
    query_tiles,
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
    SPLIT: tl.constexpr,
):
    """Grid: (B x query_tiles, Hk x parts, segments).

    Writes out: [T, H, Dv]; where SPLIT, PART: [T, H, segments, Dv] float32 instead, behind it the
    top and the total of its part_rows rows; an empty segment leaves top = -inf, its part unwritten.
    """
    BLOCK_Q: tl.constexpr = BLOCK_M // HEADS
    PARTS: tl.constexpr = (GROUP + HEADS - 1) // HEADS
    sequence = tl.program_id(0) // query_tiles
    q_first = tl.program_id(0) % query_tiles * BLOCK_Q
    kv_head = tl.program_id(1) // PARTS
    group_part = tl.program_id(1) % PARTS
    segment = tl.program_id(2)
    segments = tl.num_programs(2)
    token_first = tl.load(STARTS + sequence).to(tl.int32)
    q_len = tl.load(STARTS + sequence + 1).to(tl.int32) - token_first
    if q_first >= q_len:
        return
    length = tl.load(LENGTHS + sequence).to(tl.int32)
    if RANGES is not None:
        RANGES += sequence * ranges * 2
    lo, _, _, hi = key_bounds(
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
    if SINKS is not None and not SPLIT:
        # a key of value 0 whose logit is the sink
        top = tl.load(SINKS + head, mask=real, other=0.0).to(tl.float32) * 1.4426950408889634
        total = tl.where(top == float("-inf"), 0.0, 1.0)
    acc = tl.zeros([BLOCK_M, V_LOW], tl.float32)
    acc_high = tl.zeros([BLOCK_M, V_HIGH if V_HIGH > 0 else 1], tl.float32)
    tile_lo = lo // TILE
    tiles = tl.maximum(tl.cdiv(tl.cdiv(hi, TILE) - tile_lo, segments), least_tiles)
    begin = (tile_lo + segment * tiles) * TILE
    end = tl.minimum(begin + tiles * TILE, hi)
    # one loop, always with a mask: it costs nothing beside the bytes, a second loop would drain
    # the loads in flight
    acc, acc_high, top, total = attend(
        q,
        q_high,
        acc,
        acc_high,
        top,
        total,
        position,
        slope,
        begin,
        end,
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

    if not SPLIT:
        scale = v_scale / tl.where(total > 0.0, total, 1.0)
        rows_o = token * stride_ot + head.to(tl.int64) * stride_oh
        store_part(OUT, rows_o, stride_od, real, acc * scale[:, None], 0, V_LOW, DV)
        if V_HIGH > 0:
            store_part(OUT, rows_o, stride_od, real, acc_high * scale[:, None], V_LOW, V_HIGH, DV)
    else:
        heads = tl.num_programs(1) // PARTS * GROUP
        at = (token * heads + head) * segments + segment
        TOP = PART + part_rows.to(tl.int64) * DV
        TOTAL = TOP + part_rows
        tl.store(TOP + at, top, mask=real)
        tl.store(TOTAL + at, total, mask=real)
        written = real & (begin < end)
        store_part(PART, at * DV, 1, written, acc, 0, V_LOW, DV)
        if V_HIGH > 0:
            store_part(PART, at * DV, 1, written, acc_high, V_LOW, V_HIGH, DV)


# one binary for every number of sequences
@triton.jit(do_not_specialize=["sequences"])
def reduce_kernel(
    PART,
    part_rows,
    OUT,
    SINKS,
    STARTS,
    stride_ot,
    stride_oh,
    stride_od,
    v_scale,
    sequences,
    DV: tl.constexpr,
    V_BLOCK: tl.constexpr,
    SEGMENTS: tl.constexpr,
):
    """Writes out: [T, H, Dv] from the segments. Grid: (T, H)."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    # rows of no sequence (a captured graph's padding) are not ours to write
    if (token < tl.load(STARTS)) | (token >= tl.load(STARTS + sequences)):
        return
    at = (token * tl.num_programs(1) + head) * SEGMENTS + tl.arange(0, SEGMENTS)
    TOP = PART + part_rows.to(tl.int64) * DV
    TOTAL = TOP + part_rows
    tops = tl.load(TOP + at)
    totals = tl.load(TOTAL + at)
    top = tl.max(tops, 0)
    if SINKS is not None:
        sink = tl.load(SINKS + head).to(tl.float32) * 1.4426950408889634
        top = tl.maximum(top, sink)
    top = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp2(tops - top)
    total = tl.sum(totals * weights, 0)
    if SINKS is not None:
        total += tl.exp2(sink - top)
    column = tl.arange(0, V_BLOCK)
    live = (tops > float("-inf"))[:, None] & (column < DV)[None, :]
    parts = tl.load(PART + at[:, None] * DV + column[None, :], mask=live, other=0.0)
    scale = v_scale / tl.where(total > 0.0, total, 1.0)
    value = tl.sum(parts * weights[:, None], 0) * scale
    pointers = OUT + token * stride_ot + head.to(tl.int64) * stride_oh + column * stride_od
    tl.store(pointers, value.to(OUT.dtype.element_ty), mask=column < DV)
