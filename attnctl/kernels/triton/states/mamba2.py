"""State-space duality in Triton: one launch for decode, verification and prefill.

A program carries BP rows of one head's state [Dv, R] through one sequence's tokens, in place.
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
    silu,
    softplus,
    tile_rows,
)
from attnctl.ops.mamba2 import Mamba2
from attnctl.runtime import StateMetadata

STEP_TILES = Steps(2**20, few=(2048, 8))
"""The fastest for 1, and for 2 and more sequences of 2**20 elements on an H200."""


@triton.jit
def mamba2_kernel(
    X,
    DT,
    B,
    C,
    Z,
    A,
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
    stride_xt,
    stride_xh,
    stride_dt,
    stride_dh,
    stride_bt,
    stride_bg,
    stride_ct,
    stride_cg,
    stride_zt,
    stride_zh,
    stride_ot,
    stride_oh,
    stride_state,
    dt_least,
    dt_most,
    GROUP: tl.constexpr,
    DV: tl.constexpr,
    BP: tl.constexpr,
    PARTS: tl.constexpr,
    R: tl.constexpr,
    R_BLOCK: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    PER_CHANNEL: tl.constexpr,
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
    p = tl.program_id(0) % PARTS * BP + tl.arange(0, BP)
    r = tl.arange(0, R_BLOCK)
    real_p = p < DV
    real_r = r < R
    tile = real_p[:, None] & real_r[None, :]
    pool = STATE + head * (DV * R)
    inside = p[:, None] * R + r[None, :]
    state = tl.load(pool + source * stride_state + inside, mask=tile & known, other=0.0).to(
        tl.float32
    )
    a = tl.load(A + head).to(tl.float32)
    bias = 0.0
    if BIAS is not None:
        bias = tl.load(BIAS + head).to(tl.float32)
    skip = 0.0
    if SKIP is not None:
        if PER_CHANNEL:
            skip = tl.load(SKIP + head * DV + p, mask=real_p, other=0.0).to(tl.float32)
        else:
            skip = tl.load(SKIP + head).to(tl.float32)
    x_at = X + first * stride_xt + head * stride_xh + p
    dt_at = DT + first * stride_dt + head * stride_dh
    b_at = B + first * stride_bt + head // GROUP * stride_bg + r
    c_at = C + first * stride_ct + head // GROUP * stride_cg + r
    z_at = Z
    if Z is not None:
        z_at = Z + first * stride_zt + head * stride_zh + p
    out_at = OUT + first * stride_ot + head * stride_oh + p
    if ONE:
        # no row is longer: without a loop the loads are all under way at once
        count = 1
    for t in range(count):
        x = tl.load(x_at, mask=real_p, other=0.0).to(tl.float32)
        dt = tl.load(dt_at).to(tl.float32) + bias
        b = tl.load(b_at, mask=real_r, other=0.0).to(tl.float32)
        project = tl.load(c_at, mask=real_r, other=0.0).to(tl.float32)
        if SOFTPLUS:
            dt = softplus(dt)
        dt = tl.minimum(tl.maximum(dt, dt_least), dt_most)
        state = state + state * change(dt * a) + (dt * x)[:, None] * b[None, :]
        y = tl.sum(state * project[None, :], 1)
        if SKIP is not None:
            y = y + skip * x
        if Z is not None:
            y = y * silu(tl.load(z_at, mask=real_p, other=0.0).to(tl.float32))
            z_at += stride_zt
        tl.store(out_at, y.to(OUT.dtype.element_ty), mask=real_p)
        if VERIFIED is not None:
            kept = column_slot(SLOTS, row, t, stride_slots, COLUMNS)
            tl.store(
                pool + kept * stride_state + inside,
                state.to(STATE.dtype.element_ty),
                mask=tile & (kept >= 0) & (keep_all != 0),
            )
        x_at += stride_xt
        dt_at += stride_dt
        b_at += stride_bt
        c_at += stride_ct
        out_at += stride_ot
    tl.store(
        pool + slot * stride_state + inside,
        state.to(STATE.dtype.element_ty),
        mask=tile & (keep_all == 0),
    )


def forward(
    inputs: Mamba2,
    state: Tensor,
    metadata: StateMetadata,
    out: Tensor,
    knobs: Mapping[str, Any] = NO_KNOBS,
) -> None:
    """out: [T, H, Dv]; state: [slots, H, Dv, R], in place; long rows in chunks (decayed)."""
    if empty(out, metadata):
        return
    check_slots(state)
    x, b, c, dt = dense(inputs.x), dense(inputs.b), dense(inputs.c), inputs.dt
    z = None if inputs.z is None else dense(inputs.z)
    heads, width = x.shape[1:]
    groups, size = b.shape[1:]
    rate, skip, bias = constant(inputs.a), constant(inputs.d), constant(inputs.dt_bias)
    long = STEPS not in knobs and worth_it(x, metadata)
    if long:
        run_long(
            c, b, x, rate, state, metadata, out, state_strides=(size, 1), dt=dt, z=z, skip=skip,
            bias=bias, dt_limit=inputs.dt_limit, softplus_dt=inputs.softplus,
            changes=of_chunks(knobs),
        )  # fmt: skip
        if metadata.speculative is None:
            return
    block = power_of_2(size)
    batch = metadata.state_indices.shape[0]
    tile, warps = STEP_TILES.taken(batch * heads * width * block, knobs)
    rows = tile_rows(width, block, 8, tile)
    parts = blocks(width, rows)
    mamba2_kernel[(heads * parts, batch)](
        x, dt, b, c, z, rate, skip, bias, out, state,
        *row_arguments(metadata),
        x.stride(0), x.stride(1), dt.stride(0), dt.stride(1), b.stride(0), b.stride(1),
        c.stride(0), c.stride(1), *((0, 0) if z is None else z.stride()[:2]),
        out.stride(0), out.stride(1), state.stride(0), *inputs.dt_limit,
        GROUP=heads // groups, DV=width, BP=rows, PARTS=parts, R=size, R_BLOCK=block,
        SOFTPLUS=inputs.softplus, PER_CHANNEL=inputs.d is not None and inputs.d.dim() == 2,
        COLUMNS=metadata.state_indices.shape[1], ONLY_VERIFIED=long,
        ONE=metadata.max_query_len == 1, num_warps=warps, num_stages=2,
    )  # fmt: skip
