"""Long rows of the gated delta rule on matrix units, CHUNK tokens at a time, in two launches.

Within a chunk each update depends on the earlier ones: (I + M) u = beta (v - exp(G) S k), where M
is strictly lower triangular. The first launch inverts I + M for every chunk at once and applies it
to values and keys; the second carries the state through the chunks.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.state_rows import (
    interpreting,
    keeps_all,
    number,
    read_row,
    row_arguments,
    softplus,
)
from attnctl.ops.gdn import NORM_EPSILON, Gdn
from attnctl.runtime import StateMetadata

CHUNK = 64
BLOCK = 16
"""Rows of the diagonal blocks that are inverted first: short products of them stay small."""

ROWS = 32
"""Rows of Dv per program of the walk."""

SOLVE_WARPS = 2
WALK_WARPS = 2

LONG = 32
"""Tokens of the longest row from which chunks are worth it."""


@triton.jit
def unit_rows(x, epsilon, L2NORM: tl.constexpr):
    """The rows in float32, divided by their norm where the layer asks for it."""
    x = x.to(tl.float32)
    if L2NORM:
        x = x / tl.sqrt(tl.sum(x * x, 1) + epsilon)[:, None]
    return x


@triton.jit
def inverse(lower, CHUNK: tl.constexpr, BLOCK: tl.constexpr, EXACT: tl.constexpr):
    """(I + lower)^-1 of a strictly lower triangular matrix, whose powers end at zero."""
    i = tl.arange(0, CHUNK)
    one = tl.where(i[:, None] == i[None, :], 1.0, 0.0)
    near = tl.where(i[:, None] // BLOCK == i[None, :] // BLOCK, lower, 0.0)
    blocks = one - near
    power = near
    for _ in tl.static_range(3):
        power = tl.dot(power, power, input_precision=EXACT)
        blocks = blocks + tl.dot(blocks, power, input_precision=EXACT)
    # four blocks of 16: what is left is zero from its fourth power on
    far = tl.dot(blocks, lower - near, input_precision=EXACT)
    square = tl.dot(far, far, input_precision=EXACT)
    sum_of_powers = one - far + square - tl.dot(far, square, input_precision=EXACT)
    return tl.dot(sum_of_powers, blocks, input_precision=EXACT)


@triton.jit
def solve_kernel(
    K,
    V,
    G,
    BETA,
    U,
    W,
    TOTAL,
    A_LOG,
    BIAS,
    STARTS,
    SLOTS,
    KNOWN,
    ACCEPTED,
    VERIFIED,
    stride_slots,
    stride_kt,
    stride_kh,
    stride_vt,
    stride_vh,
    stride_gt,
    stride_gh,
    stride_bt,
    stride_bh,
    epsilon,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    DV: tl.constexpr,
    DV_BLOCK: tl.constexpr,
    L2NORM: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
    FULL: tl.constexpr,
):
    """Program (chunk, head, row): TOTAL [T, Hv] the decay since the chunk began, as a logarithm,
    U [T, Hv, Dv] = (I + M)^-1 beta v and W [T, Hv, D] = (I + M)^-1 beta exp(TOTAL) k."""
    row = tl.program_id(2)
    head = tl.program_id(1)
    first, count, slot, _, _ = read_row(STARTS, SLOTS, KNOWN, ACCEPTED, row, stride_slots)
    begin = tl.program_id(0) * CHUNK
    if (slot < 0) | (begin >= count) | (keeps_all(VERIFIED, row) != 0):
        return
    i = tl.arange(0, CHUNK)
    real = begin + i < count
    at = first + begin + i
    d = tl.arange(0, D_BLOCK)
    v = tl.arange(0, DV_BLOCK)
    gate = tl.load(G + at * stride_gt + head * stride_gh, mask=real, other=0.0).to(tl.float32)
    if A_LOG is not None:
        if BIAS is not None:
            gate += tl.load(BIAS + head)
        gate = tl.where(real, -tl.exp(tl.load(A_LOG + head)) * softplus(gate), 0.0)
    total = tl.cumsum(gate, 0)
    tl.store(TOTAL + at * HEADS + head, total, mask=real)
    beta = tl.load(BETA + at * stride_bt + head * stride_bh, mask=real, other=0.0).to(tl.float32)
    k_at = K + at[:, None] * stride_kt + head // GROUP * stride_kh + d[None, :]
    loaded = tl.load(k_at, mask=real[:, None] & (d < D)[None, :], other=0.0)
    kind: tl.constexpr = tl.float32 if FULL else loaded.dtype
    key = unit_rows(loaded, epsilon, L2NORM)
    overlap = tl.dot(key.to(kind), tl.trans(key.to(kind)))
    below = i[:, None] > i[None, :]
    since = tl.where(below, total[:, None] - total[None, :], -float("inf"))
    solved = inverse(beta[:, None] * overlap * tl.exp(since), CHUNK, BLOCK, EXACT).to(kind)
    v_at = V + at[:, None] * stride_vt + head * stride_vh + v[None, :]
    tv = real[:, None] & (v < DV)[None, :]
    value = tl.load(v_at, mask=tv, other=0.0).to(tl.float32) * beta[:, None]
    u = tl.dot(solved, value.to(kind))
    u_at = U + (at[:, None] * HEADS + head) * DV + v[None, :]
    tl.store(u_at, u.to(U.dtype.element_ty), mask=tv)
    w = tl.dot(solved, (key * (beta * tl.exp(total))[:, None]).to(kind))
    w_at = W + (at[:, None] * HEADS + head) * D + d[None, :]
    tl.store(w_at, w.to(W.dtype.element_ty), mask=real[:, None] & (d < D)[None, :])


@triton.jit
def walk_kernel(
    Q,
    K,
    U,
    W,
    TOTAL,
    OUT,
    STATE,
    STARTS,
    SLOTS,
    KNOWN,
    ACCEPTED,
    VERIFIED,
    stride_slots,
    stride_qt,
    stride_qh,
    stride_kt,
    stride_kh,
    stride_ot,
    stride_oh,
    stride_state,
    scale,
    epsilon,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    DV: tl.constexpr,
    BV: tl.constexpr,
    PARTS: tl.constexpr,
    L2NORM: tl.constexpr,
    CHUNK: tl.constexpr,
    FULL: tl.constexpr,
):
    """Program (head and part of Dv, row): outputs, and the state in place."""
    row = tl.program_id(1)
    head = tl.program_id(0) // PARTS
    first, count, slot, source, known = read_row(STARTS, SLOTS, KNOWN, ACCEPTED, row, stride_slots)
    if (slot < 0) | (count <= 0) | (keeps_all(VERIFIED, row) != 0):
        return
    d = tl.arange(0, D_BLOCK)
    v = tl.program_id(0) % PARTS * BV + tl.arange(0, BV)
    i = tl.arange(0, CHUNK)
    real_d = d < D
    real_v = v < DV
    tile = real_v[:, None] & real_d[None, :]
    inside = head * DV * D + v[:, None] * D + d[None, :]
    state = tl.load(STATE + source * stride_state + inside, mask=tile & known, other=0.0)
    state = state.to(tl.float32)
    for begin in range(0, count, CHUNK):
        real = begin + i < count
        at = first + begin + i
        td = real[:, None] & real_d[None, :]
        tv = real[:, None] & real_v[None, :]
        total = tl.load(TOTAL + at * HEADS + head, mask=real, other=0.0)
        last = first + tl.minimum(begin + CHUNK, count) - 1
        whole = tl.load(TOTAL + last * HEADS + head)
        q_at = Q + at[:, None] * stride_qt + head // GROUP * stride_qh + d[None, :]
        k_at = K + at[:, None] * stride_kt + head // GROUP * stride_kh + d[None, :]
        loaded = tl.load(q_at, mask=td, other=0.0)
        kind: tl.constexpr = tl.float32 if FULL else loaded.dtype
        query = unit_rows(loaded, epsilon, L2NORM).to(kind)
        key = unit_rows(tl.load(k_at, mask=td, other=0.0), epsilon, L2NORM).to(kind)
        w_at = W + (at[:, None] * HEADS + head) * D + d[None, :]
        u_at = U + (at[:, None] * HEADS + head) * DV + v[None, :]
        w = tl.load(w_at, mask=td, other=0.0).to(kind)
        u = tl.load(u_at, mask=tv, other=0.0).to(tl.float32)
        held = tl.trans(state.to(kind))
        update = u - tl.dot(w, held)
        causal = (i[:, None] >= i[None, :]) & real[:, None]
        since = tl.where(causal, total[:, None] - total[None, :], -float("inf"))
        scores = tl.dot(query, tl.trans(key)) * tl.exp(since)
        output = tl.dot(query, held) * tl.exp(total)[:, None]
        output = tl.dot(scores.to(kind), update.to(kind), output) * scale
        out_at = OUT + at[:, None] * stride_ot + head * stride_oh + v[None, :]
        tl.store(out_at, output.to(OUT.dtype.element_ty), mask=tv)
        left = update * tl.exp(whole - total)[:, None]
        state = tl.dot(tl.trans(left.to(kind)), key, state * tl.exp(whole))
    tl.store(STATE + slot * stride_state + inside, state.to(STATE.dtype.element_ty), mask=tile)


def worth_it(inputs: Gdn, metadata: StateMetadata) -> bool:
    """True for long rows in half precision with a decay per head and widths that fit on chip."""
    half = inputs.q.dtype in (torch.float16, torch.bfloat16)
    widest = max(inputs.q.shape[2], inputs.v.shape[2])
    return metadata.max_query_len >= LONG and half and inputs.g.dim() == 2 and widest <= 128


def run(inputs: Gdn, state: Tensor, metadata: StateMetadata, out: Tensor) -> None:
    """Every row that is not under verification. Tensors with a dense last dimension."""
    q, k, v, g, beta = inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta
    tokens, heads, width_v = v.shape
    width = q.shape[2]
    rows = metadata.state_indices.shape[0]
    u, w = v.new_empty(v.shape), q.new_empty(tokens, heads, width)
    total = torch.empty(tokens, heads, dtype=torch.float32, device=q.device)
    constants: dict[str, Any] = {
        "HEADS": heads,
        "GROUP": heads // q.shape[1],
        "D": width,
        "D_BLOCK": max(triton.next_power_of_2(width), 16),
        "DV": width_v,
        "L2NORM": inputs.l2norm,
        "CHUNK": CHUNK,
        "FULL": interpreting(),
    }
    exact = "ieee" if torch.version.hip or q.device.type != "cuda" else "tf32x3"
    chunks = triton.cdiv(metadata.max_query_len, CHUNK)
    solve_kernel[(chunks, heads, rows)](
        k, v, g, beta, u, w, total, number(inputs.a_log), number(inputs.dt_bias),
        *row_arguments(metadata),
        k.stride(0), k.stride(1), v.stride(0), v.stride(1), g.stride(0), g.stride(1),
        beta.stride(0), beta.stride(1), NORM_EPSILON,
        DV_BLOCK=max(triton.next_power_of_2(width_v), 16), BLOCK=BLOCK, EXACT=exact,
        **constants, num_warps=SOLVE_WARPS, num_stages=2,
    )  # fmt: skip
    part = max(min(triton.next_power_of_2(width_v), 256 if interpreting() else ROWS), 16)
    parts = triton.cdiv(width_v, part)
    walk_kernel[(heads * parts, rows)](
        q, k, u, w, total, out, state, *row_arguments(metadata),
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), out.stride(0), out.stride(1),
        state.stride(0), inputs.scale, NORM_EPSILON,
        BV=part, PARTS=parts, **constants, num_warps=WALK_WARPS, num_stages=2,
    )  # fmt: skip
