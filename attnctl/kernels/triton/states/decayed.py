"""Long rows of linear attention with a decay per head, on matrix units: Mamba 2 and lightning.

Within a chunk it is attention without softmax whose weights decay with distance, across chunks a
state. A walk carries BP rows of one head's state through the chunks of a row, in place; outputs are
computed transposed, so that the state is a left operand and stays in registers. Where decays depend
on tokens (Mamba 2), a first launch works them out for all chunks at once, with the products of b
and c that the heads of a group share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.states.launch import NO_CHANGES, Walk, walk_for
from attnctl.kernels.triton.states.rows import (
    chunk_of_row,
    chunk_slot,
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
def steps_kernel(
    Q,
    K,
    DT,
    RATE,
    BIAS,
    PRODUCTS,
    STEPS,
    TOTAL,
    STARTS,
    SLOTS,
    VERIFIED,
    stride_slots,
    stride_qt,
    stride_qh,
    stride_kt,
    stride_kh,
    stride_dt,
    stride_dh,
    dt_least,
    dt_most,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    CHUNK: tl.constexpr,
    FULL: tl.constexpr,
):
    """Program (group, chunk of a row, row), results by chunk slot.

    PRODUCTS [j, i]: k_j q_i of a group. STEPS, TOTAL [i], for each head: dt, and the log decay
    since the chunk began.
    """
    group = tl.program_id(0).to(tl.int64)
    first, count, at = chunk_of_row(STARTS, SLOTS, VERIFIED, stride_slots, CHUNK)
    if count <= 0:
        return
    i = tl.arange(0, CHUNK)
    d = tl.arange(0, D_BLOCK)
    real = i < count
    t = first + i
    k_at = K + group * stride_kh + t[:, None] * stride_kt + d[None, :]
    q_at = Q + group * stride_qh + t[None, :] * stride_qt + d[:, None]
    key = tl.load(k_at, mask=real[:, None] & (d < D)[None, :], other=0.0)
    query = tl.load(q_at, mask=(d < D)[:, None] & real[None, :], other=0.0)
    if FULL:
        key = key.to(tl.float32)
        query = query.to(tl.float32)
    products = tl.dot(key, query).to(PRODUCTS.dtype.element_ty)
    place = (at * (HEADS // GROUP) + group) * (CHUNK * CHUNK)
    tl.store(PRODUCTS + place + i[:, None] * CHUNK + i[None, :], products)

    h = tl.arange(0, GROUP_BLOCK)
    head = group * GROUP + h
    rows = (h < GROUP)[:, None]
    dt_at = DT + head[:, None] * stride_dh + t[None, :] * stride_dt
    dt = tl.load(dt_at, mask=rows & real[None, :], other=0.0).to(tl.float32)
    if BIAS is not None:
        dt += tl.load(BIAS + head, mask=h < GROUP, other=0.0).to(tl.float32)[:, None]
    if SOFTPLUS:
        dt = softplus(dt)
    dt = tl.where(real[None, :], tl.minimum(tl.maximum(dt, dt_least), dt_most), 0.0)
    rate = tl.load(RATE + head, mask=h < GROUP, other=0.0).to(tl.float32)
    inside = (at * HEADS + head)[:, None] * CHUNK + i[None, :]
    tl.store(STEPS + inside, dt, mask=rows)
    tl.store(TOTAL + inside, tl.cumsum(dt * rate[:, None], 1), mask=rows)


@triton.jit
def decayed_kernel(
    Q,
    K,
    V,
    Z,
    RATE,
    SKIP,
    PRODUCTS,
    STEPS,
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
    stride_vt,
    stride_vh,
    stride_zt,
    stride_zh,
    stride_ot,
    stride_oh,
    stride_state,
    stride_state_v,
    stride_state_d,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DV: tl.constexpr,
    BP: tl.constexpr,
    PARTS: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    PER_CHANNEL: tl.constexpr,
    CHUNK: tl.constexpr,
    FULL: tl.constexpr,
):
    """Program (head and part of Dv, row); rows under verification are left to the other kernel.

    PRODUCTS, STEPS, TOTAL: those of steps_kernel, or None where each token decays by RATE [H], a
    logarithm. FULL: products in float32, for the interpreter.
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
    pool = STATE + head * (DV * D)
    inside = p[:, None] * stride_state_v + d[None, :] * stride_state_d
    state = tl.load(pool + source * stride_state + inside, mask=tile & known, other=0.0)
    state = state.to(tl.float32)
    skip = 0.0
    if SKIP is not None:
        if PER_CHANNEL:
            skip = tl.load(SKIP + head * DV + p, mask=real_p, other=0.0).to(tl.float32)[:, None]
        else:
            skip = tl.load(SKIP + head).to(tl.float32)
    # scalar pointers that move, and places in a chunk that do not: few registers
    k_at = K + head // GROUP * stride_kh + first * stride_kt
    q_at = Q + head // GROUP * stride_qh + first * stride_qt
    v_at = V + head * stride_vh + first * stride_vt
    out_at = OUT + head * stride_oh + first * stride_ot
    k_in = i[:, None] * stride_kt + d[None, :]
    q_in = i[None, :] * stride_qt + d[:, None]
    v_in = i[None, :] * stride_vt + p[:, None]
    out_in = i[None, :] * stride_ot + p[:, None]
    z_at = Z
    if Z is not None:
        z_at = Z + head * stride_zh + first * stride_zt
    at = chunk_slot(first, row, CHUNK)
    forward = i[None, :] >= i[:, None]
    rate = 0.0
    constant = tl.where(forward, 1.0, 0.0)
    if STEPS is None:
        rate = tl.load(RATE + head).to(tl.float32)
        distance = (i[None, :] - i[:, None]).to(tl.float32)
        constant = tl.exp(tl.where(forward, rate * distance, -float("inf")))
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
        if STEPS is None:
            weights = tl.dot(key, query) * constant
            total = rate * (i + 1).to(tl.float32)
            whole = rate * tl.minimum(count - begin, CHUNK).to(tl.float32)
            left = tl.exp(tl.minimum(whole - total, 0.0))
        else:
            heads_at = (at * HEADS + head) * CHUNK
            total = tl.load(TOTAL + heads_at + i)
            whole = tl.load(TOTAL + heads_at + CHUNK - 1)
            step = tl.load(STEPS + heads_at + i)
            products = PRODUCTS + (at * (HEADS // GROUP) + head // GROUP) * (CHUNK * CHUNK)
            weights = tl.load(products + i[:, None] * CHUNK + i[None, :]).to(tl.float32)
            since = tl.where(forward, total[None, :] - total[:, None], -float("inf"))
            weights = weights * tl.exp(since) * step[:, None]
            left = step * tl.exp(whole - total)
        y = tl.dot(state.to(kind), query) * tl.exp(total)[None, :]
        y = tl.dot(value, weights.to(kind), y) * scale
        decayed = (value.to(tl.float32) * left[None, :]).to(kind)
        state = tl.dot(decayed, key, state * tl.exp(whole))
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
        at += 1
    tl.store(pool + slot * stride_state + inside, state.to(STATE.dtype.element_ty), mask=tile)


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
    walk: Walk | None = None,
    changes: Mapping[str, int] = NO_CHANGES,
) -> None:
    """q, k: [T, Hk, D]. v: [T, H, Dv]. rate: [H]. state_strides: of Dv and D inside a head.

    changes: of the walk that is chosen.
    """
    heads, width_v = v.shape[1:]
    groups, width = q.shape[1:]
    starts, indices, known, accepted, verified, stride_slots = row_arguments(metadata)
    batch = indices.shape[0]
    if walk is None:
        programs = heads * triton.cdiv(width_v, 64) * batch
        walk = walk_for("linear" if dt is None else "mamba2", q.device, programs)
    walk = msgspec.structs.replace(walk, **changes)
    block = max(triton.next_power_of_2(width), 16)
    chunk, warps, stages = walk.chunk, walk.warps, walk.stages
    if block > 128:
        warps, stages = 8, 1
    part = max(min(triton.next_power_of_2(width_v), 256 if interpreting() else walk.rows), 16)
    shape: dict[str, Any] = {
        "HEADS": heads,
        "GROUP": heads // groups,
        "D": width,
        "D_BLOCK": block,
        "CHUNK": chunk,
        "FULL": interpreting(),
    }
    products = steps = total = None
    if dt is not None:
        slots = q.shape[0] // chunk + batch
        products = q.new_empty(slots, groups, chunk, chunk)
        steps, total = torch.empty(
            2, slots, heads, chunk, dtype=torch.float32, device=q.device
        ).unbind()
        steps_kernel[(groups, triton.cdiv(metadata.max_query_len, chunk), batch)](
            q, k, dt, rate, bias, products, steps, total, starts, indices, verified, stride_slots,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), *dt.stride(), *dt_limit,
            GROUP_BLOCK=triton.next_power_of_2(heads // groups), SOFTPLUS=softplus_dt, **shape,
            num_warps=walk.prepare_warps, num_stages=1,
        )  # fmt: skip
    parts = triton.cdiv(width_v, part)
    decayed_kernel[(heads * parts, batch)](
        q, k, v, z, rate, skip, products, steps, total, out, state,
        starts, indices, known, accepted, verified, stride_slots,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        *((0, 0) if z is None else z.stride()[:2]), out.stride(0), out.stride(1),
        state.stride(0), *state_strides, scale, DV=width_v, BP=part, PARTS=parts,
        PER_CHANNEL=skip is not None and skip.dim() == 2, **shape,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
