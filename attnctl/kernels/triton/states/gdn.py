"""The gated delta rule in Triton: one launch for decode, verification and prefill.

A program carries BV rows of one head's state [Dv, D] through one sequence's tokens. The state is
read once and written in place once; nothing else is stored but outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.states.knobs import NO_KNOBS, STEPS, of_chunks
from attnctl.kernels.triton.states.gdn_chunks import run as run_long
from attnctl.kernels.triton.states.gdn_chunks import worth_it
from attnctl.kernels.triton.states.rows import (
    Steps,
    blocks,
    change,
    check_slots,
    column_slot,
    constant,
    dense,
    empty,
    keeps_all,
    power_of_2,
    read_row,
    row_arguments,
    softplus,
    tile_rows,
)
from attnctl.ops.gdn import NORM_EPSILON, Gdn
from attnctl.runtime import StateMetadata

STEP_TILES = Steps(2**19, few=(1024, 8))
"""The fastest for 1, and for 2 and more sequences of 2**19 elements on an H200."""


@triton.jit
def gdn_kernel(
    Q,
    K,
    V,
    G,
    BETA,
    OUT,
    STATE,
    A_LOG,
    BIAS,
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
    stride_gt,
    stride_gh,
    stride_bt,
    stride_bh,
    stride_ot,
    stride_oh,
    stride_state,
    scale,
    epsilon,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    DV: tl.constexpr,
    BV: tl.constexpr,
    PARTS: tl.constexpr,
    CHANNEL: tl.constexpr,
    L2NORM: tl.constexpr,
    COLUMNS: tl.constexpr,
    ONLY_VERIFIED: tl.constexpr,
    ONE: tl.constexpr,
):
    """Program (head and part of Dv, row). Everything is computed in float32."""
    row = tl.program_id(1)
    head = (tl.program_id(0) // PARTS).to(tl.int64)
    first, count, slot, source, known = read_row(STARTS, SLOTS, KNOWN, ACCEPTED, row, stride_slots)
    if (slot < 0) | (count <= 0):
        return
    keep_all = keeps_all(VERIFIED, row)
    if ONLY_VERIFIED and (keep_all == 0):
        return
    d = tl.arange(0, D_BLOCK)
    v = tl.program_id(0) % PARTS * BV + tl.arange(0, BV)
    real_d = d < D
    real_v = v < DV
    tile = real_v[:, None] & real_d[None, :]
    pool = STATE + head * (DV * D)
    inside = v[:, None] * D + d[None, :]
    state = tl.load(pool + source * stride_state + inside, mask=tile & known, other=0.0).to(
        tl.float32
    )

    rate = 0.0
    bias = 0.0
    if A_LOG is not None:
        rate = -tl.exp(tl.load(A_LOG + head).to(tl.float32))
        if BIAS is not None:
            if CHANNEL:
                bias = tl.load(BIAS + head * D + d, mask=real_d, other=0.0).to(tl.float32)
            else:
                bias = tl.load(BIAS + head).to(tl.float32)

    q_at = Q + first * stride_qt + head // GROUP * stride_qh + d
    k_at = K + first * stride_kt + head // GROUP * stride_kh + d
    v_at = V + first * stride_vt + head * stride_vh + v
    g_at = G + first * stride_gt + head * stride_gh
    if CHANNEL:
        g_at = g_at + d
    beta_at = BETA + first * stride_bt + head * stride_bh
    out_at = OUT + first * stride_ot + head * stride_oh + v
    if ONE:
        # no row is longer: without a loop the loads are all under way at once
        count = 1
    for t in range(count):
        key = tl.load(k_at, mask=real_d, other=0.0).to(tl.float32)
        query = tl.load(q_at, mask=real_d, other=0.0).to(tl.float32)
        value = tl.load(v_at, mask=real_v, other=0.0).to(tl.float32)
        beta = tl.load(beta_at).to(tl.float32)
        if L2NORM:
            key = key / tl.sqrt(tl.sum(key * key, 0) + epsilon)
            query = query / tl.sqrt(tl.sum(query * query, 0) + epsilon)
        if CHANNEL:
            gate = tl.load(g_at, mask=real_d, other=0.0).to(tl.float32)
        else:
            gate = tl.load(g_at).to(tl.float32)
        if A_LOG is not None:
            gate = rate * softplus(gate + bias)
        if CHANNEL:
            state = state + state * change(gate)[None, :]
        else:
            state = state + state * change(gate)
        update = beta * (value - tl.sum(state * key[None, :], 1))
        state = state + update[:, None] * key[None, :]
        output = tl.sum(state * query[None, :], 1) * scale
        tl.store(out_at, output.to(OUT.dtype.element_ty), mask=real_v)
        if VERIFIED is not None:
            kept = column_slot(SLOTS, row, t, stride_slots, COLUMNS)
            tl.store(
                pool + kept * stride_state + inside,
                state.to(STATE.dtype.element_ty),
                mask=tile & (kept >= 0) & (keep_all != 0),
            )
        q_at += stride_qt
        k_at += stride_kt
        v_at += stride_vt
        g_at += stride_gt
        beta_at += stride_bt
        out_at += stride_ot
    tl.store(
        pool + slot * stride_state + inside,
        state.to(STATE.dtype.element_ty),
        mask=tile & (keep_all == 0),
    )


def forward(
    inputs: Gdn,
    state: Tensor,
    metadata: StateMetadata,
    out: Tensor,
    knobs: Mapping[str, Any] = NO_KNOBS,
) -> None:
    """out: [T, Hv, Dv]; state: [slots, Hv, Dv, D], in place; long rows in chunks (gdn_chunks)."""
    if empty(out, metadata):
        return
    check_slots(state)
    q, k, v = dense(inputs.q), dense(inputs.k), dense(inputs.v)
    g, beta = dense(inputs.g), inputs.beta
    heads, width_v = v.shape[1], v.shape[2]
    width = q.shape[2]
    block = power_of_2(width)
    long = STEPS not in knobs and worth_it(inputs, metadata)
    if long:
        ready = msgspec.structs.replace(inputs, q=q, k=k, v=v, g=g)
        run_long(ready, state, metadata, out, changes=of_chunks(knobs))
        if metadata.speculative is None:
            return
    batch = metadata.state_indices.shape[0]
    tile, warps = STEP_TILES.taken(batch * heads * width_v * block, knobs)
    rows = tile_rows(width_v, block, 8, tile)
    parts = blocks(width_v, rows)
    gdn_kernel[(heads * parts, batch)](
        q, k, v, g, beta, out, state, constant(inputs.a_log), constant(inputs.dt_bias),
        *row_arguments(metadata),
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        g.stride(0), g.stride(1), beta.stride(0), beta.stride(1), out.stride(0), out.stride(1),
        state.stride(0), inputs.scale, NORM_EPSILON,
        GROUP=heads // q.shape[1], D=width, D_BLOCK=block, DV=width_v, BV=rows, PARTS=parts,
        CHANNEL=g.dim() == 3, L2NORM=inputs.l2norm,
        COLUMNS=metadata.state_indices.shape[1], ONLY_VERIFIED=long,
        ONE=metadata.max_query_len == 1, num_warps=warps, num_stages=2,
    )  # fmt: skip
