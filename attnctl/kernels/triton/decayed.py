"""Long rows of linear attention with a decay per head, on matrix units: Mamba 2 and lightning.

A program carries BP rows of one head's state through one sequence, CHUNK tokens at a time: within a
chunk it is attention without softmax whose weights decay with distance, across chunks a state. One
launch does all rows; the state is read once and written in place once. Outputs are computed
transposed, so that the state is a left operand and stays in registers.
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
    head = (tl.program_id(0) // PARTS).to(tl.int64)
    first, count, slot, source, known = read_row(STARTS, SLOTS, KNOWN, ACCEPTED, row, stride_slots)
    if (slot < 0) | (count <= 0) | (keeps_all(VERIFIED, row) != 0):
        return
    p = tl.program_id(0) % PARTS * BP + tl.arange(0, BP)
    d = tl.arange(0, D_BLOCK)
    i = tl.arange(0, CHUNK)
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
    skip = 0.0
    if SKIP is not None:
        if PER_CHANNEL:
            skip = tl.load(SKIP + head * DV + p, mask=real_p, other=0.0)[:, None]
        else:
            skip = tl.load(SKIP + head)
    # scalar pointers that move, and places in a chunk that do not: few registers
    k_at = K + head // GROUP * stride_kh + first * stride_kt
    q_at = Q + head // GROUP * stride_qh + first * stride_qt
    v_at = V + head * stride_vh + first * stride_vt
    out_at = OUT + head * stride_oh + first * stride_ot
    k_in = i[:, None] * stride_kt + d[None, :]
    q_in = i[None, :] * stride_qt + d[:, None]
    v_in = i[None, :] * stride_vt + p[:, None]
    out_in = i[None, :] * stride_ot + p[:, None]
    dt_at = DT
    if DT is not None:
        dt_at = DT + head * stride_dh + first * stride_dt
    z_at = Z
    if Z is not None:
        z_at = Z + head * stride_zh + first * stride_zt
    forward = i[None, :] >= i[:, None]
    for begin in range(0, count, CHUNK):
        real = begin + i < count
        tokens = real_p[:, None] & real[None, :]
        key = tl.load(k_at + k_in, mask=real[:, None] & real_d[None, :], other=0.0)
        query = tl.load(q_at + q_in, mask=real_d[:, None] & real[None, :], other=0.0)
        value = tl.load(v_at + v_in, mask=tokens, other=0.0)
        if FULL:
            key = key.to(tl.float32)
            query = query.to(tl.float32)
            value = value.to(tl.float32)
        kind: tl.constexpr = key.dtype
        dt = tl.where(real, 1.0, 0.0)
        if DT is not None:
            dt = tl.load(dt_at + i * stride_dt, mask=real, other=0.0).to(tl.float32) + bias
            if SOFTPLUS:
                dt = softplus(dt)
            dt = tl.where(real, tl.minimum(tl.maximum(dt, dt_least), dt_most), 0.0)
            dt_at += CHUNK * stride_dt
        log = dt * rate
        total = tl.cumsum(log, 0)
        whole = tl.sum(log, 0)
        since = tl.where(forward, total[None, :] - total[:, None], -float("inf"))
        weights = tl.dot(key, query) * tl.exp(since) * dt[:, None]
        y = tl.dot(state.to(kind), query) * tl.exp(total)[None, :]
        y = tl.dot(value, weights.to(kind), y) * scale
        left = value.to(tl.float32) * (dt * tl.exp(whole - total))[None, :]
        state = tl.dot(left.to(kind), key, state * tl.exp(whole))
        if SKIP is not None:
            y += skip * value.to(tl.float32)
        if Z is not None:
            z_in = i[None, :] * stride_zt + p[:, None]
            y = y * silu(tl.load(z_at + z_in, mask=tokens, other=0.0).to(tl.float32))
            z_at += CHUNK * stride_zt
        tl.store(out_at + out_in, y.to(OUT.dtype.element_ty), mask=tokens)
        k_at += CHUNK * stride_kt
        q_at += CHUNK * stride_qt
        v_at += CHUNK * stride_vt
        out_at += CHUNK * stride_ot
    tl.store(STATE + slot * stride_state + inside, state.to(STATE.dtype.element_ty), mask=tile)


KNOBS: dict[str, Any] = {"rows": 64, "warps": 4, "stages": 2, "chunk": 64}


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
    knobs: dict[str, Any] = KNOBS,
) -> None:
    """q, k: [T, Hk, D]. v: [T, H, Dv]. rate: [H]. state_strides: of Dv and D inside a head."""
    heads, width_v = v.shape[1:]
    width = q.shape[2]
    block = max(triton.next_power_of_2(width), 16)
    most = 256 if interpreting() else knobs["rows"]
    rows = max(min(triton.next_power_of_2(width_v), most), 16)
    parts = triton.cdiv(width_v, rows)
    wide = block > 128
    constants: dict[str, Any] = {
        "GROUP": heads // q.shape[1],
        "DV": width_v,
        "BP": rows,
        "PARTS": parts,
        "D": width,
        "D_BLOCK": block,
        "SOFTPLUS": softplus_dt,
        "PER_CHANNEL": skip is not None and skip.dim() == 2,
        "CHUNK": min(knobs["chunk"], 64) if wide else knobs["chunk"],
        "FULL": interpreting(),
    }
    decayed_kernel[(heads * parts, metadata.state_indices.shape[0])](
        q, k, v, dt, z, rate, skip, bias, out, state, *row_arguments(metadata),
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        *((0, 0) if dt is None else dt.stride()), *((0, 0) if z is None else z.stride()[:2]),
        out.stride(0), out.stride(1), state.stride(0), *state_strides, *dt_limit, scale,
        **constants,
        num_warps=8 if wide else knobs["warps"],
        num_stages=1 if wide else knobs["stages"],
    )  # fmt: skip
