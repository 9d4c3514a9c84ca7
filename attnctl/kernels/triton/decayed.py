"""Long rows of linear attention with a decay per head, on matrix units: Mamba 2 and lightning.

A program carries BP rows of one head's state through one sequence, CHUNK tokens at a time: within a
chunk it is attention without softmax whose weights decay with distance, across chunks a state. One
launch does all rows; the state is read once and written in place once.
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
    read_row,
    row_arguments,
    silu,
    softplus,
)
from attnctl.runtime import StateMetadata

CHUNK = 64
ROWS = 32
"""Rows of Dv per program: more programs against more shared work between them."""

WARPS = 2
LONG = 32
"""Tokens of the longest row from which chunks are worth it."""


@triton.jit
def decayed_kernel(
    Q,
    K,
    V,
    DT,
    Z,
    RATE,
    SKIP,
    BIAS,
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
    stride_vt,
    stride_vh,
    stride_dt,
    stride_dh,
    stride_zt,
    stride_zh,
    stride_ot,
    stride_oh,
    stride_state,
    stride_state_v,
    stride_state_d,
    dt_least,
    dt_most,
    scale,
    GROUP: tl.constexpr,
    DV: tl.constexpr,
    BP: tl.constexpr,
    PARTS: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    PER_CHANNEL: tl.constexpr,
    CHUNK: tl.constexpr,
    FULL: tl.constexpr,
):
    """Program (head and part of Dv, row); rows under verification are left to the other kernel.

    RATE: [H], the log decay per unit of dt. FULL: products in float32, for the interpreter.
    """
    row = tl.program_id(1)
    head = tl.program_id(0) // PARTS
    first, count, slot, source, known = read_row(STARTS, SLOTS, KNOWN, ACCEPTED, row, stride_slots)
    if (slot < 0) | (count <= 0) | (keeps_all(VERIFIED, row) != 0):
        return
    p = tl.program_id(0) % PARTS * BP + tl.arange(0, BP)
    d = tl.arange(0, D_BLOCK)
    step = tl.arange(0, CHUNK)
    real_p = p < DV
    real_d = d < D
    tile = real_p[:, None] & real_d[None, :]
    inside = head * DV * D + p[:, None] * stride_state_v + d[None, :] * stride_state_d
    state = tl.load(STATE + source * stride_state + inside, mask=tile & known, other=0.0)
    state = state.to(tl.float32)
    rate = tl.load(RATE + head)
    bias = 0.0
    if BIAS is not None:
        bias = tl.load(BIAS + head)
    causal = step[:, None] >= step[None, :]
    for begin in range(0, count, CHUNK):
        t = begin + step
        real_t = t < count
        at = first + t
        dt = tl.where(real_t, 1.0, 0.0)
        if DT is not None:
            dt = tl.load(DT + at * stride_dt + head * stride_dh, mask=real_t, other=0.0)
            dt = dt.to(tl.float32) + bias
            if SOFTPLUS:
                dt = softplus(dt)
            dt = tl.where(real_t, tl.minimum(tl.maximum(dt, dt_least), dt_most), 0.0)
        log = dt * rate
        total = tl.cumsum(log, 0)
        whole = tl.sum(log, 0)
        td = real_t[:, None] & real_d[None, :]
        tp = real_t[:, None] & real_p[None, :]
        q_at = Q + at[:, None] * stride_qt + head // GROUP * stride_qh + d[None, :]
        k_at = K + at[:, None] * stride_kt + head // GROUP * stride_kh + d[None, :]
        v_at = V + at[:, None] * stride_vt + head * stride_vh + p[None, :]
        query = tl.load(q_at, mask=td, other=0.0)
        key = tl.load(k_at, mask=td, other=0.0)
        value = tl.load(v_at, mask=tp, other=0.0).to(tl.float32)
        if FULL:
            query = query.to(tl.float32)
            key = key.to(tl.float32)
        kind: tl.constexpr = query.dtype
        written = value * dt[:, None]
        scores = tl.dot(query, tl.trans(key))
        since = tl.where(causal, total[:, None] - total[None, :], -float("inf"))
        scores = scores * tl.exp(since)
        y = tl.dot(query, tl.trans(state.to(kind))) * tl.exp(total)[:, None]
        y = tl.dot(scores.to(kind), written.to(kind), y) * scale
        left = written * tl.exp(whole - total)[:, None]
        state = tl.dot(tl.trans(left.to(kind)), key, state * tl.exp(whole))
        if SKIP is not None:
            if PER_CHANNEL:
                y += tl.load(SKIP + head * DV + p, mask=real_p, other=0.0)[None, :] * value
            else:
                y += tl.load(SKIP + head) * value
        if Z is not None:
            z_at = Z + at[:, None] * stride_zt + head * stride_zh + p[None, :]
            y = y * silu(tl.load(z_at, mask=tp, other=0.0).to(tl.float32))
        out_at = OUT + at[:, None] * stride_ot + head * stride_oh + p[None, :]
        tl.store(out_at, y.to(OUT.dtype.element_ty), mask=tp)
    tl.store(STATE + slot * stride_state + inside, state.to(STATE.dtype.element_ty), mask=tile)


def worth_it(q: Tensor, metadata: StateMetadata) -> bool:
    """True for long rows in half precision: matrix units round float32 to fewer digits."""
    return metadata.max_query_len >= LONG and q.dtype in (torch.float16, torch.bfloat16)


def run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rate: Tensor,
    state: Tensor,
    metadata: StateMetadata,
    out: Tensor,
    *,
    state_strides: tuple[int, int],
    dt: Tensor | None = None,
    z: Tensor | None = None,
    skip: Tensor | None = None,
    bias: Tensor | None = None,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    softplus_dt: bool = False,
    scale: float = 1.0,
) -> None:
    """q, k: [T, Hk, D]. v: [T, H, Dv]. rate: [H]. state_strides: of Dv and D inside a head."""
    heads, width_v = v.shape[1:]
    width = q.shape[2]
    block = max(triton.next_power_of_2(width), 16)
    rows = max(min(triton.next_power_of_2(width_v), 256 if interpreting() else ROWS), 16)
    parts = triton.cdiv(width_v, rows)
    constants: dict[str, Any] = {
        "GROUP": heads // q.shape[1],
        "DV": width_v,
        "BP": rows,
        "PARTS": parts,
        "D": width,
        "D_BLOCK": block,
        "SOFTPLUS": softplus_dt,
        "PER_CHANNEL": skip is not None and skip.dim() == 2,
        "CHUNK": CHUNK if block <= 128 else CHUNK // 2,
        "FULL": interpreting(),
    }
    decayed_kernel[(heads * parts, metadata.state_indices.shape[0])](
        q, k, v, dt, z, rate, skip, bias, out, state, *row_arguments(metadata),
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        *((0, 0) if dt is None else dt.stride()), *((0, 0) if z is None else z.stride()[:2]),
        out.stride(0), out.stride(1), state.stride(0), *state_strides, *dt_limit, scale,
        **constants, num_warps=WARPS, num_stages=2,
    )  # fmt: skip
