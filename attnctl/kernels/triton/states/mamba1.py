"""The selective scan in Triton: one launch for decode, verification and prefill.

A program carries BC channels' states [C, R] through one sequence's tokens, in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.states.knobs import NO_KNOBS, STEPS, of_chunks
from attnctl.kernels.triton.states.mamba1_scan import KNOBS, worth_it
from attnctl.kernels.triton.states.mamba1_scan import run as run_long
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
from attnctl.ops.mamba1 import Mamba1
from attnctl.runtime import StateMetadata

STEP_TILES = Steps(2**20, few=(512, 4), many=(1024, 2))
"""The fastest for 1 to 8, and for 64 and 256 sequences of 2**17 elements on an H200."""


@triton.jit
def mamba1_kernel(
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
    stride_dt,
    stride_bt,
    stride_ct,
    stride_zt,
    stride_ot,
    stride_state,
    CHANNELS: tl.constexpr,
    BC: tl.constexpr,
    R: tl.constexpr,
    R_BLOCK: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ONLY_VERIFIED: tl.constexpr,
    ONE: tl.constexpr,
):
    """Program (part of C, row). Everything is computed in float32."""
    row = tl.program_id(1)
    first, count, slot, source, known = read_row(STARTS, SLOTS, KNOWN, ACCEPTED, row, stride_slots)
    if (slot < 0) | (count <= 0):
        return
    keep_all = keeps_all(VERIFIED, row)
    if ONLY_VERIFIED and (keep_all == 0):
        return
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    r = tl.arange(0, R_BLOCK)
    real_c = c < CHANNELS
    real_r = r < R
    tile = real_c[:, None] & real_r[None, :]
    inside = c[:, None] * R + r[None, :]
    state = tl.load(STATE + source * stride_state + inside, mask=tile & known, other=0.0).to(
        tl.float32
    )
    a = tl.load(A + inside, mask=tile, other=0.0).to(tl.float32)
    bias = 0.0
    if BIAS is not None:
        bias = tl.load(BIAS + c, mask=real_c, other=0.0).to(tl.float32)
    x_at = X + first * stride_xt + c
    dt_at = DT + first * stride_dt + c
    b_at = B + first * stride_bt + r
    c_at = C + first * stride_ct + r
    z_at = Z
    if Z is not None:
        z_at = Z + first * stride_zt + c
    out_at = OUT + first * stride_ot + c
    if ONE:
        # no row is longer: without a loop the loads are all under way at once
        count = 1
    for t in range(count):
        x = tl.load(x_at, mask=real_c, other=0.0).to(tl.float32)
        dt = tl.load(dt_at, mask=real_c, other=0.0).to(tl.float32) + bias
        b = tl.load(b_at, mask=real_r, other=0.0).to(tl.float32)
        project = tl.load(c_at, mask=real_r, other=0.0).to(tl.float32)
        if SOFTPLUS:
            dt = softplus(dt)
        state = state + state * change(dt[:, None] * a) + (dt * x)[:, None] * b[None, :]
        y = tl.sum(state * project[None, :], 1)
        if SKIP is not None:
            y = y + tl.load(SKIP + c, mask=real_c, other=0.0).to(tl.float32) * x
        if Z is not None:
            y = y * silu(tl.load(z_at, mask=real_c, other=0.0).to(tl.float32))
            z_at += stride_zt
        tl.store(out_at, y.to(OUT.dtype.element_ty), mask=real_c)
        if VERIFIED is not None:
            kept = column_slot(SLOTS, row, t, stride_slots, COLUMNS)
            tl.store(
                STATE + kept * stride_state + inside,
                state.to(STATE.dtype.element_ty),
                mask=tile & (kept >= 0) & (keep_all != 0),
            )
        x_at += stride_xt
        dt_at += stride_dt
        b_at += stride_bt
        c_at += stride_ct
        out_at += stride_ot
    tl.store(
        STATE + slot * stride_state + inside,
        state.to(STATE.dtype.element_ty),
        mask=tile & (keep_all == 0),
    )


def forward(
    inputs: Mamba1,
    state: Tensor,
    metadata: StateMetadata,
    out: Tensor,
    knobs: Mapping[str, Any] = NO_KNOBS,
) -> None:
    """out: [T, C]; state: [slots, C, R], in place; long rows in segments (mamba1_scan)."""
    if empty(out, metadata):
        return
    check_slots(state)
    x, dt, b, c = (dense(value) for value in (inputs.x, inputs.dt, inputs.b, inputs.c))
    z = None if inputs.z is None else dense(inputs.z)
    long = STEPS not in knobs and worth_it(inputs, metadata)
    if long:
        ready = msgspec.structs.replace(inputs, x=x, dt=dt, b=b, c=c, z=z)
        run_long(ready, state, metadata, out, {**KNOBS, **of_chunks(knobs)})
        if metadata.speculative is None:
            return
    channels, size = inputs.a.shape
    block = power_of_2(size)
    batch = metadata.state_indices.shape[0]
    tile, warps = STEP_TILES.taken(batch * channels * block, knobs)
    part = tile_rows(channels, block, 32, tile)
    mamba1_kernel[(blocks(channels, part), batch)](
        x, dt, b, c, z, constant(inputs.a), constant(inputs.d), constant(inputs.dt_bias),
        out, state, *row_arguments(metadata),
        x.stride(0), dt.stride(0), b.stride(0), c.stride(0), 0 if z is None else z.stride(0),
        out.stride(0), state.stride(0),
        CHANNELS=channels, BC=part, R=size, R_BLOCK=block, SOFTPLUS=inputs.softplus,
        COLUMNS=metadata.state_indices.shape[1], ONLY_VERIFIED=long,
        ONE=metadata.max_query_len == 1, num_warps=warps, num_stages=2,
    )  # fmt: skip
