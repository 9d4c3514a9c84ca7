"""Long rows of the selective scan: segments of tokens in parallel, in two launches.

The first launch runs every segment but the last from a state of zero (a row's first from its own)
and keeps the state at its end; first segments are finished with that. In the second, each later
segment puts its initial state together from the ends before it, and computes outputs. The first
launch alone reads the pool and, but for rows of one segment, the second alone writes it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.states.launch import facts_of
from attnctl.kernels.triton.states.rows import (
    constant,
    interpreting,
    keeps_all,
    read_row,
    row_arguments,
    silu,
    softplus,
)
from attnctl.ops.mamba1 import Mamba1
from attnctl.runtime import StateMetadata

LONG = 64
"""Tokens of the longest row from which this is worth it."""

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def scan_kernel(
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
    ENDS,
    STEPS,
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
    segment,
    CHANNELS: tl.constexpr,
    BC: tl.constexpr,
    R: tl.constexpr,
    R_BLOCK: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    LATER: tl.constexpr,
):
    """Program (part of C, row, segment of the row). LATER: the second launch.

    ENDS: [segments, C, R] states, STEPS: [segments, C] sums of dt, by chunk slot.
    """
    row = tl.program_id(1)
    first, count, slot, source, known = read_row(STARTS, SLOTS, KNOWN, ACCEPTED, row, stride_slots)
    place = tl.program_id(2)
    begin = place * segment
    if (slot < 0) | (begin >= count) | (keeps_all(VERIFIED, row) != 0):
        return
    last = begin + segment >= count
    outputs = (place == 0) != LATER
    # without outputs a segment is run for its end, which nobody needs of the last
    if (last | LATER) & (not outputs):
        return
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    r = tl.arange(0, R_BLOCK)
    real_c = c < CHANNELS
    real_r = r < R
    tile = real_c[:, None] & real_r[None, :]
    inside = c[:, None] * R + r[None, :]
    rate = tl.load(A + inside, mask=tile, other=0.0).to(tl.float32) * LOG2E
    base = (first // segment + row) * CHANNELS
    if LATER:
        state = tl.load(ENDS + base * R + inside, mask=tile, other=0.0)
        for earlier in range(1, place):
            at = base + earlier * CHANNELS
            steps = tl.load(STEPS + at + c, mask=real_c, other=0.0)
            end = tl.load(ENDS + at * R + inside, mask=tile, other=0.0)
            state = state * tl.exp2(steps[:, None] * rate) + end
    else:
        mine = tile & known & (place == 0)
        state = tl.load(STATE + source * stride_state + inside, mask=mine, other=0.0)
        state = state.to(tl.float32)
    bias = 0.0
    if BIAS is not None:
        bias = tl.load(BIAS + c, mask=real_c, other=0.0).to(tl.float32)
    skip = 0.0
    if SKIP is not None:
        skip = tl.load(SKIP + c, mask=real_c, other=0.0).to(tl.float32)
    steps = tl.zeros([BC], tl.float32)
    t = first + begin
    x_at = X + t * stride_xt + c
    dt_at = DT + t * stride_dt + c
    b_at = B + t * stride_bt + r
    c_at = C + t * stride_ct + r
    z_at = Z
    if Z is not None:
        z_at = Z + t * stride_zt + c
    out_at = OUT + t * stride_ot + c
    tokens = tl.minimum(count - begin, segment)
    # the next token's numbers are under way while this one's are used
    x = tl.load(x_at, mask=real_c, other=0.0)
    dt = tl.load(dt_at, mask=real_c, other=0.0)
    b = tl.load(b_at, mask=real_r, other=0.0)
    project = tl.load(c_at, mask=real_r & outputs, other=0.0)
    for done in range(tokens):
        more = done + 1 < tokens
        x_at += stride_xt
        dt_at += stride_dt
        b_at += stride_bt
        c_at += stride_ct
        next_x = tl.load(x_at, mask=real_c & more, other=0.0)
        next_dt = tl.load(dt_at, mask=real_c & more, other=0.0)
        next_b = tl.load(b_at, mask=real_r & more, other=0.0)
        next_project = tl.load(c_at, mask=real_r & more & outputs, other=0.0)
        step = dt.to(tl.float32) + bias
        if SOFTPLUS:
            step = softplus(step)
        wide = x.to(tl.float32)
        state = state * tl.exp2(step[:, None] * rate) + (step * wide)[:, None] * b.to(tl.float32)
        steps += step
        if outputs:
            y = tl.sum(state * project.to(tl.float32)[None, :], 1) + skip * wide
            if Z is not None:
                y = y * silu(tl.load(z_at, mask=real_c, other=0.0).to(tl.float32))
            tl.store(out_at, y.to(OUT.dtype.element_ty), mask=real_c)
        if Z is not None:
            z_at += stride_zt
        out_at += stride_ot
        x = next_x
        dt = next_dt
        b = next_b
        project = next_project
    if last:
        slot_at = STATE + slot * stride_state + inside
        tl.store(slot_at, state.to(STATE.dtype.element_ty), mask=tile)
    elif not LATER:
        end_at = base + place * CHANNELS
        tl.store(STEPS + end_at + c, steps, mask=real_c)
        tl.store(ENDS + end_at * R + inside, state, mask=tile)


KNOBS: dict[str, Any] = {"tile": 1024, "warps": 1, "fill": 16, "least": 64}


def worth_it(inputs: Mamba1, metadata: StateMetadata) -> bool:
    """True for long rows in half precision: its exponentials are the device's own, quick ones."""
    half = inputs.x.dtype in (torch.float16, torch.bfloat16)
    return metadata.max_query_len >= LONG and half


def run(
    inputs: Mamba1,
    state: Tensor,
    metadata: StateMetadata,
    out: Tensor,
    knobs: dict[str, Any] = KNOBS,
) -> None:
    """Every row that is not under verification. Tensors with a dense last dimension."""
    x, dt, b, c, z = inputs.x, inputs.dt, inputs.b, inputs.c, inputs.z
    channels, size = inputs.a.shape
    rows, longest = metadata.state_indices.shape[0], metadata.max_query_len
    block = triton.next_power_of_2(size)
    whole = triton.next_power_of_2(channels)
    part = min(whole, 256 if interpreting() else max(knobs["tile"] // block, 32))
    parts = triton.cdiv(channels, part)
    wanted = triton.cdiv(knobs["fill"] * facts_of(x.device).units, parts * rows)
    segment = max(triton.cdiv(longest, wanted), knobs["least"])
    segments = triton.cdiv(longest, segment)
    slots = x.shape[0] // segment + rows if segments > 1 else 0
    ends = torch.empty(slots * channels * (size + 1), dtype=torch.float32, device=x.device)
    arguments = (
        x, dt, b, c, z, constant(inputs.a), constant(inputs.d), constant(inputs.dt_bias),
        out, state, ends, ends[slots * channels * size :], *row_arguments(metadata),
        x.stride(0), dt.stride(0), b.stride(0), c.stride(0), 0 if z is None else z.stride(0),
        out.stride(0), state.stride(0), segment,
    )  # fmt: skip
    for later in (False, True)[: 1 + (segments > 1)]:
        scan_kernel[(parts, rows, segments)](
            *arguments, CHANNELS=channels, BC=part, R=size, R_BLOCK=block,
            SOFTPLUS=inputs.softplus, LATER=later, num_warps=knobs["warps"], num_stages=1,
        )  # fmt: skip
