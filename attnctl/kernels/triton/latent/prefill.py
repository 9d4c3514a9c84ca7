"""The uncompressed form: packed queries over packed keys and values, with the log-sum-exp."""

from __future__ import annotations

import triton
import triton.language as tl

from attnctl.kernels.triton.latent.tile import find_tile, load_columns


@triton.jit
def attend_keys(
    q,
    q_high,
    acc,
    top,
    total,
    k,
    k_high,
    v,
    seen,
    factor,
    D_HIGH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A tile of keys added to the running sum, top and total. seen: None where all rows see all."""
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if D_HIGH > 0:
        s = tl.dot(q_high, tl.trans(k_high), acc=s, input_precision=PRECISION)
    if seen is None:
        # the factor is positive: it goes into the exponent with one multiplication and addition
        new_top = tl.maximum(top, tl.max(s, 1) * factor)
        shift = new_top
        p = tl.exp2(s * factor - shift[:, None])
    else:
        s = tl.where(seen, s * factor, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        # a row that has seen nothing yet: -inf - -inf would be NaN
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        p = tl.exp2(s - shift[:, None])
    fade = tl.exp2(top - shift)
    total = total * fade + tl.sum(p, 1)
    acc = tl.dot(p.to(q.dtype), v, acc=acc * fade[:, None], input_precision=PRECISION)
    return acc, new_top, total


@triton.jit
def mla_prefill_kernel(
    Q,
    K,
    V,
    OUT,
    LSE,
    STARTS,
    KEY_STARTS,
    stride_qt,
    stride_qh,
    stride_ks,
    stride_kh,
    stride_vs,
    stride_vh,
    stride_ot,
    stride_oh,
    stride_st,
    stride_sh,
    factor,
    sequences,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    D: tl.constexpr,
    D_LOW: tl.constexpr,
    D_HIGH: tl.constexpr,
    DV: tl.constexpr,
    V_BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr,
    POSITIVE: tl.constexpr,
    INTERPRET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid: (query tiles, H). The key is cut in a low and a high power of two (192 = 128 + 64).

    Tiles that every row sees whole come first, without a mask.
    """
    # backwards: with a causal mask the longest start first
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    sequence = find_tile(STARTS, tile, sequences, BLOCK_M)
    first = tl.load(STARTS + sequence)
    queries = tl.load(STARTS + sequence + 1) - first
    begin = (tile - first // BLOCK_M - sequence) * BLOCK_M
    if begin >= queries:
        return
    key_first = tl.load(KEY_STARTS + sequence)
    length = tl.load(KEY_STARTS + sequence + 1) - key_first
    head = tl.program_id(1).to(tl.int64)
    index = begin + tl.arange(0, BLOCK_M)
    real = index < queries
    token = (first + index).to(tl.int64)
    position = length - queries + index
    DTYPE: tl.constexpr = tl.float32 if INTERPRET else Q.dtype.element_ty
    HIGH: tl.constexpr = D - D_LOW
    WHOLE: tl.constexpr = D if D_HIGH == 0 else D_LOW
    rows_q = token * stride_qt + head * stride_qh
    q = load_columns(Q, rows_q, real, WHOLE, D_LOW, 0, DTYPE)
    q_high = q
    if D_HIGH > 0:
        q_high = load_columns(Q + D_LOW, rows_q, real, HIGH, D_HIGH, 0, DTYPE)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, V_BLOCK], tl.float32)
    hi = length
    whole = length
    if CAUSAL:
        hi = tl.minimum(length, length - queries + begin + BLOCK_M)
        whole = tl.maximum(length - queries + begin + 1, 0)
    whole = whole // TILE * TILE if POSITIVE else 0
    K += head * stride_kh
    V += head * stride_vh
    for start in range(0, whole, TILE):
        key = start + tl.arange(0, TILE)
        inside = key >= 0
        rows_k = (key_first + key).to(tl.int64) * stride_ks
        rows_v = (key_first + key).to(tl.int64) * stride_vs
        k = load_columns(K, rows_k, inside, WHOLE, D_LOW, 0, q.dtype)
        v = load_columns(V, rows_v, inside, DV, V_BLOCK, 0, q.dtype)
        k_high = k
        if D_HIGH > 0:
            k_high = load_columns(K + D_LOW, rows_k, inside, HIGH, D_HIGH, 0, q.dtype)
        acc, top, total = attend_keys(
            q, q_high, acc, top, total, k, k_high, v, None, factor, D_HIGH, PRECISION
        )
    for start in range(whole, hi, TILE):
        key = start + tl.arange(0, TILE)
        inside = key < hi
        rows_k = (key_first + key).to(tl.int64) * stride_ks
        rows_v = (key_first + key).to(tl.int64) * stride_vs
        k = load_columns(K, rows_k, inside, WHOLE, D_LOW, 0, q.dtype)
        v = load_columns(V, rows_v, inside, DV, V_BLOCK, 0, q.dtype)
        k_high = k
        if D_HIGH > 0:
            k_high = load_columns(K + D_LOW, rows_k, inside, HIGH, D_HIGH, 0, q.dtype)
        seen = inside[None, :] & real[:, None]
        if CAUSAL:
            seen = seen & (key[None, :] <= position[:, None])
        acc, top, total = attend_keys(
            q, q_high, acc, top, total, k, k_high, v, seen, factor, D_HIGH, PRECISION
        )
    safe = tl.where(total > 0.0, total, 1.0)
    column = tl.arange(0, V_BLOCK)
    rows = token * stride_ot + head * stride_oh
    value = acc / safe[:, None]
    keep = real[:, None] & (column < DV)[None, :]
    tl.store(OUT + rows[:, None] + column[None, :], value.to(OUT.dtype.element_ty), mask=keep)
    lse = tl.where(total > 0.0, (top + tl.log2(safe)) * 0.6931471805599453, float("-inf"))
    tl.store(LSE + token * stride_st + head * stride_sh, lse, mask=real)
