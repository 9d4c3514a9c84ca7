"""Lightning attention in Triton: one launch for decode, verification and prefill.

A program carries BV columns of one head's state [D, Dv] through one sequence's tokens, in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.states.knobs import NO_KNOBS, STEPS, of_chunks
from attnctl.kernels.triton.states.decayed import run as run_long
from attnctl.kernels.triton.states.decayed import worth_it
from attnctl.kernels.triton.states.rows import (
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
    tile_rows,
)
from attnctl.ops.linear import Linear
from attnctl.runtime import StateMetadata

TILE = 8192
"""As attnctl.kernels.triton.states.rows.TILE: rows of this state are columns of the program's tile,
which must be wide to be read whole."""

WARPS = 4


@triton.jit
def linear_kernel(
    Q,
    K,
    V,
    SLOPE,
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
    stride_ot,
    stride_oh,
    stride_state,
    scale,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    DV: tl.constexpr,
    BV: tl.constexpr,
    PARTS: tl.constexpr,
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
    tile = real_d[:, None] & real_v[None, :]
    pool = STATE + head * (D * DV)
    inside = d[:, None] * DV + v[None, :]
    state = tl.load(pool + source * stride_state + inside, mask=tile & known, other=0.0).to(
        tl.float32
    )
    decay = change(-tl.load(SLOPE + head).to(tl.float32))
    q_at = Q + first * stride_qt + head * stride_qh + d
    k_at = K + first * stride_kt + head * stride_kh + d
    v_at = V + first * stride_vt + head * stride_vh + v
    out_at = OUT + first * stride_ot + head * stride_oh + v
    if ONE:
        # no row is longer: without a loop the loads are all under way at once
        count = 1
    for t in range(count):
        key = tl.load(k_at, mask=real_d, other=0.0).to(tl.float32)
        query = tl.load(q_at, mask=real_d, other=0.0).to(tl.float32)
        value = tl.load(v_at, mask=real_v, other=0.0).to(tl.float32)
        state = state + state * decay + key[:, None] * value[None, :]
        output = tl.sum(state * query[:, None], 0) * scale
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
        out_at += stride_ot
    tl.store(
        pool + slot * stride_state + inside,
        state.to(STATE.dtype.element_ty),
        mask=tile & (keep_all == 0),
    )


def forward(
    inputs: Linear,
    state: Tensor,
    metadata: StateMetadata,
    out: Tensor,
    knobs: Mapping[str, Any] = NO_KNOBS,
) -> None:
    """out: [T, H, Dv]; state: [slots, H, D, Dv], in place; long rows in chunks (decayed)."""
    if empty(out, metadata):
        return
    check_slots(state)
    q, k, v = dense(inputs.q), dense(inputs.k), dense(inputs.v)
    heads, width_v = v.shape[1:]
    width = q.shape[2]
    slope = constant(inputs.slope)
    long = STEPS not in knobs and worth_it(q, metadata)
    if long:
        run_long(
            q, k, v, -slope, state, metadata, out, state_strides=(1, width_v), scale=inputs.scale,
            changes=of_chunks(knobs),
        )  # fmt: skip
        if metadata.speculative is None:
            return
    block = power_of_2(width)
    part = tile_rows(width_v, block, 64, knobs.get("tile", TILE))
    parts = blocks(width_v, part)
    linear_kernel[(heads * parts, metadata.state_indices.shape[0])](
        q, k, v, slope, out, state, *row_arguments(metadata),
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        out.stride(0), out.stride(1), state.stride(0), inputs.scale,
        D=width, D_BLOCK=block, DV=width_v, BV=part, PARTS=parts,
        COLUMNS=metadata.state_indices.shape[1], ONLY_VERIFIED=long,
        ONE=metadata.max_query_len == 1, num_warps=knobs.get("warps", WARPS), num_stages=2,
    )  # fmt: skip
