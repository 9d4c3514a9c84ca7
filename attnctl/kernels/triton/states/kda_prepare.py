"""As gdn_prepare, for a gate per channel: decays lie inside the products of keys and queries.

A pair of tokens i > j counts with exp(total_i - total_j) in each channel. Split at a token r
between them it is exp(total_i - total_r) exp(total_r - total_j), both at most 1 however strong the
gates are, so that one product serves all pairs that r separates: r is the middle of each block of
2, 4, 8, ... tokens, and each pair has exactly one. Blocks whose gates are weak enough are one
product whatever the order. Queries and keys for the walk carry their decays.
"""

from __future__ import annotations

import triton
import triton.language as tl

from attnctl.kernels.triton.states.gdn_prepare import inverse
from attnctl.kernels.triton.states.rows import chunk_of_row, softplus

TIGHT = tl.constexpr(16)


@triton.jit
def totals_kernel(
    G,
    TOTAL,
    A_LOG,
    BIAS,
    STARTS,
    SLOTS,
    VERIFIED,
    stride_slots,
    stride_gt,
    stride_gh,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Program (head, chunk, row): TOTAL [CHUNK, D], the log decay since the chunk began."""
    head = tl.program_id(0).to(tl.int64)
    first, count, at = chunk_of_row(STARTS, SLOTS, VERIFIED, stride_slots, CHUNK)
    if count <= 0:
        return
    at = at * HEADS + head
    i = tl.arange(0, CHUNK)
    d = tl.arange(0, D_BLOCK)
    real = (i < count)[:, None] & (d < D)[None, :]
    g_at = G + head * stride_gh + (first + i)[:, None] * stride_gt + d[None, :]
    gate = tl.load(g_at, mask=real, other=0.0).to(tl.float32)
    if A_LOG is not None:
        if BIAS is not None:
            bias = tl.load(BIAS + head * D + d, mask=d < D, other=0.0)
            gate += bias.to(tl.float32)[None, :]
        gate = tl.where(real, -tl.exp(tl.load(A_LOG + head).to(tl.float32)) * softplus(gate), 0.0)
    total_at = TOTAL + at * (CHUNK * D_BLOCK) + i[:, None] * D_BLOCK + d[None, :]
    tl.store(total_at, tl.cumsum(gate, 0))


@triton.jit
def prepare_channels_kernel(
    Q,
    K,
    V,
    BETA,
    TOTAL,
    TO_VALUES,
    TO_KEYS,
    WEIGHTS,
    TO_QUERY,
    KEPT,
    WHOLE,
    STARTS,
    SLOTS,
    VERIFIED,
    stride_slots,
    stride_qt,
    stride_qh,
    stride_kt,
    stride_kh,
    stride_vt,
    stride_vh,
    stride_bt,
    stride_bh,
    scale,
    epsilon,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    DV: tl.constexpr,
    DV_BLOCK: tl.constexpr,
    L2NORM: tl.constexpr,
    CHUNK: tl.constexpr,
    FULL: tl.constexpr,
):
    """Program (head, chunk of a row, row), after totals_kernel. TO_QUERY [D, i]: the decayed query;
    KEPT [j, D]: keys decayed to the chunk's end; WHOLE [D]: the decay of the whole chunk."""
    head = tl.program_id(0).to(tl.int64)
    first, count, at = chunk_of_row(STARTS, SLOTS, VERIFIED, stride_slots, CHUNK)
    if count <= 0:
        return
    at = at * HEADS + head
    i = tl.arange(0, CHUNK)
    real = i < count
    t = first + i
    d = tl.arange(0, D_BLOCK)
    real_d = d < D
    beta = tl.load(BETA + t * stride_bt + head * stride_bh, mask=real, other=0.0).to(tl.float32)
    k_at = K + head // GROUP * stride_kh
    columns = real_d[:, None] & real[None, :]
    rows = real[:, None] & real_d[None, :]
    k_in = k_at + t[:, None] * stride_kt + d[None, :]
    kt_in = k_at + t[None, :] * stride_kt + d[:, None]
    qt_in = Q + head // GROUP * stride_qh + t[None, :] * stride_qt + d[:, None]
    kt = tl.load(kt_in, mask=columns, other=0.0)
    kind: tl.constexpr = tl.float32 if FULL else kt.dtype
    kt = kt.to(tl.float32)
    qt = tl.load(qt_in, mask=columns, other=0.0).to(tl.float32)
    k_norm = tl.full([CHUNK], 1.0, tl.float32)
    q_norm = tl.full([CHUNK], scale, tl.float32)
    if L2NORM:
        k_norm = 1.0 / tl.sqrt(tl.sum(kt * kt, 0) + epsilon)
        q_norm = scale / tl.sqrt(tl.sum(qt * qt, 0) + epsilon)
    j = i[:, None]
    weights = tl.where(j == i[None, :], tl.sum(qt * kt, 0)[None, :], 0.0)
    overlap = tl.zeros([CHUNK, CHUNK], tl.float32)
    total_at = TOTAL + at * (CHUNK * D_BLOCK)
    # within blocks whose gates are not that strong one product serves all pairs at once
    block = tl.arange(0, CHUNK // TIGHT) * TIGHT
    ends = total_at + (block[:, None] + TIGHT - 1) * D_BLOCK + d[None, :]
    before = tl.load(ends - TIGHT * D_BLOCK, mask=(block > 0)[:, None], other=0.0)
    tight = tl.max(tl.max(before - tl.load(ends), 1), 0)
    whole = tl.load(total_at + (CHUNK - 1) * D_BLOCK + d)
    # a decay and its inverse must be numbers with all their digits
    SAFE: tl.constexpr = 4.0 if kind == tl.float16 else 60.0
    half = tl.where(tl.max(-whole, 0) < SAFE, CHUNK // 2, tl.where(tight < SAFE, TIGHT // 2, 1))
    dense = half > 1
    while half < CHUNK:
        # pairs whose tokens lie in the two halves of a block, or, if dense, anywhere in it
        pair = i // (2 * half)
        late = (i // half % 2 == 1) | dense
        middle = total_at + (pair * (2 * half) + half - 1) * D_BLOCK
        total = tl.load(total_at + i[:, None] * D_BLOCK + d[None, :])
        early = tl.exp(tl.minimum(tl.load(middle[:, None] + d[None, :]) - total, SAFE))
        # tiles are read anew, from the cache
        k = tl.load(k_in, mask=rows & ((late == 0) | dense)[:, None], other=0.0).to(tl.float32)
        keys = (k * early).to(kind)
        total = tl.load(total_at + i[None, :] * D_BLOCK + d[:, None])
        decay = tl.exp(tl.minimum(total - tl.load(middle[None, :] + d[:, None]), SAFE))
        here = columns & late[None, :]
        same = (pair[:, None] == pair[None, :]) & (i[None, :] > j)
        query = (tl.load(qt_in, mask=here, other=0.0).to(tl.float32) * decay).to(kind)
        weights += tl.where(same, tl.dot(keys, query), 0.0)
        other = (tl.load(kt_in, mask=here, other=0.0).to(tl.float32) * decay).to(kind)
        overlap += tl.where(same, tl.dot(keys, other), 0.0)
        half *= 2
        dense = half < 0
    weights = weights * k_norm[:, None] * q_norm[None, :]
    weights_at = WEIGHTS + at * (CHUNK * CHUNK) + j * CHUNK + i[None, :]
    tl.store(weights_at, weights.to(WEIGHTS.dtype.element_ty))
    solved = inverse(overlap * k_norm[:, None] * (k_norm * beta)[None, :], CHUNK, FULL)

    decay = tl.exp(tl.load(total_at + i[None, :] * D_BLOCK + d[:, None]))
    qt = tl.load(qt_in, mask=columns, other=0.0).to(tl.float32)
    kt = tl.load(kt_in, mask=columns, other=0.0).to(tl.float32)
    in_rows = d[:, None] * CHUNK + i[None, :]
    query = qt * decay * q_norm[None, :]
    tl.store(TO_QUERY + at * (D_BLOCK * CHUNK) + in_rows, query.to(TO_QUERY.dtype.element_ty))
    keys = (kt * decay).to(kind)
    keys = tl.dot(keys, (solved * (-beta * k_norm)[:, None]).to(kind))
    tl.store(TO_KEYS + at * (D_BLOCK * CHUNK) + in_rows, keys.to(TO_KEYS.dtype.element_ty))
    whole = tl.load(total_at + (CHUNK - 1) * D_BLOCK + d)
    tl.store(WHOLE + at * D_BLOCK + d, tl.exp(whole))
    total = tl.load(total_at + i[:, None] * D_BLOCK + d[None, :])
    kept = tl.load(k_in, mask=rows, other=0.0).to(tl.float32)
    kept = kept * tl.exp(whole[None, :] - total) * k_norm[:, None]
    kept_at = KEPT + at * (D_BLOCK * CHUNK) + i[:, None] * D_BLOCK + d[None, :]
    tl.store(kept_at, kept.to(KEPT.dtype.element_ty))

    v = tl.arange(0, DV_BLOCK)
    v_at = V + head * stride_vh + t[None, :] * stride_vt + v[:, None]
    vt = tl.load(v_at, mask=(v < DV)[:, None] & real[None, :], other=0.0)
    values = tl.dot(vt.to(kind), (solved * beta[:, None]).to(kind))
    to_values = TO_VALUES + at * (DV_BLOCK * CHUNK) + v[:, None] * CHUNK + i[None, :]
    tl.store(to_values, values.to(TO_VALUES.dtype.element_ty))
