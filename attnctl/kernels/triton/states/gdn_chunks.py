"""Long rows of the gated delta rule on matrix units: chunks prepared in parallel, then a walk.

The walk carries BV rows of one head's state through the chunks of a row, in place. Its state is the
left operand of every product and stays in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.states.gdn_prepare import prepare_kernel
from attnctl.kernels.triton.states.kda_prepare import prepare_channels_kernel, totals_kernel
from attnctl.kernels.triton.states.launch import NO_CHANGES, Walk, walk_for
from attnctl.kernels.triton.states.rows import (
    chunk_slot,
    constant,
    interpreting,
    keeps_all,
    read_row,
    row_arguments,
)
from attnctl.ops.gdn import NORM_EPSILON, Gdn
from attnctl.runtime import StateMetadata

LONG = 32
"""Tokens of the longest row from which chunks are worth it."""


@triton.jit
def walk_kernel(
    Q,
    K,
    TO_VALUES,
    TO_KEYS,
    WEIGHTS,
    GAIN,
    LEFT,
    WHOLE,
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
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    DV: tl.constexpr,
    DV_BLOCK: tl.constexpr,
    BV: tl.constexpr,
    PARTS: tl.constexpr,
    CHUNK: tl.constexpr,
    CHANNEL: tl.constexpr,
    FULL: tl.constexpr,
):
    """Program (head and part of Dv, row); rows under verification are left to the other kernel.

    CHANNEL: Q and K are kda_prepare's TO_QUERY and KEPT, by chunk slot, and need no factors.
    """
    row = tl.program_id(1)
    head = (tl.program_id(0) // PARTS).to(tl.int64)
    first, count, slot, source, known = read_row(STARTS, SLOTS, KNOWN, ACCEPTED, row, stride_slots)
    if (slot < 0) | (count <= 0) | (keeps_all(VERIFIED, row) != 0):
        return
    d = tl.arange(0, D_BLOCK)
    v = tl.program_id(0) % PARTS * BV + tl.arange(0, BV)
    i = tl.arange(0, CHUNK)
    real_d = d < D
    real_v = v < DV
    tile = real_v[:, None] & real_d[None, :]
    pool = STATE + head * (DV * D)
    inside = v[:, None] * D + d[None, :]
    state = tl.load(pool + source * stride_state + inside, mask=tile & known, other=0.0)
    state = state.to(tl.float32)
    at = chunk_slot(first, row, CHUNK) * HEADS + head
    # scalar pointers that move, and places in a chunk that do not: few registers
    q_at = Q + head // GROUP * stride_qh + first * stride_qt
    k_at = K + head // GROUP * stride_kh + first * stride_kt
    out_at = OUT + head * stride_oh + first * stride_ot
    q_in = i[None, :] * stride_qt + d[:, None]
    k_in = i[:, None] * stride_kt + d[None, :]
    out_in = i[None, :] * stride_ot + v[:, None]
    kept_in = i[:, None] * D_BLOCK + d[None, :]
    keys_in = d[:, None] * CHUNK + i[None, :]
    values_in = v[:, None] * CHUNK + i[None, :]
    weights_in = i[:, None] * CHUNK + i[None, :]
    for begin in range(0, count, CHUNK):
        real = begin + i < count
        to_keys = tl.load(TO_KEYS + at * (D_BLOCK * CHUNK) + keys_in)
        values = tl.load(TO_VALUES + at * (DV_BLOCK * CHUNK) + values_in).to(tl.float32)
        if CHANNEL:
            query = tl.load(Q + at * (D_BLOCK * CHUNK) + keys_in)
            key = tl.load(K + at * (D_BLOCK * CHUNK) + kept_in)
            whole = tl.load(WHOLE + at * D_BLOCK + d)[None, :]
        else:
            query = tl.load(q_at + q_in, mask=real_d[:, None] & real[None, :], other=0.0)
            key = tl.load(k_at + k_in, mask=real[:, None] & real_d[None, :], other=0.0)
            whole = tl.load(WHOLE + at)
        weights = tl.load(WEIGHTS + at * (CHUNK * CHUNK) + weights_in)
        if FULL:
            to_keys = to_keys.to(tl.float32)
            query = query.to(tl.float32)
            key = key.to(tl.float32)
            weights = weights.to(tl.float32)
        kind: tl.constexpr = key.dtype
        held = state.to(kind)
        update = tl.dot(held, to_keys, values)
        left = update
        output = tl.dot(held, query)
        if not CHANNEL:
            left = update * tl.load(LEFT + at * CHUNK + i)[None, :]
            output = output * tl.load(GAIN + at * CHUNK + i)[None, :]
        state = tl.dot(left.to(kind), key, state * whole)
        output = tl.dot(update.to(kind), weights, output)
        tokens = real_v[:, None] & real[None, :]
        tl.store(out_at + out_in, output.to(OUT.dtype.element_ty), mask=tokens)
        q_at += CHUNK * stride_qt
        k_at += CHUNK * stride_kt
        out_at += CHUNK * stride_ot
        at += HEADS
    tl.store(pool + slot * stride_state + inside, state.to(STATE.dtype.element_ty), mask=tile)


def worth_it(inputs: Gdn, metadata: StateMetadata) -> bool:
    """True for long rows in half precision and widths that fit on chip."""
    half = inputs.q.dtype in (torch.float16, torch.bfloat16)
    widest = max(inputs.q.shape[2], inputs.v.shape[2])
    return metadata.max_query_len >= LONG and half and widest <= 128


def run(
    inputs: Gdn,
    state: Tensor,
    metadata: StateMetadata,
    out: Tensor,
    walk: Walk | None = None,
    changes: Mapping[str, int] = NO_CHANGES,
) -> None:
    """Every row that is not under verification. Tensors with a dense last dimension.

    changes: of the walk that is chosen.
    """
    q, k, v = inputs.q, inputs.k, inputs.v
    tokens, heads, width_v = v.shape
    width = q.shape[2]
    rows = metadata.state_indices.shape[0]
    block, block_v = (max(triton.next_power_of_2(one), 16) for one in (width, width_v))
    channel = inputs.g.dim() == 3
    if walk is None:
        programs = heads * triton.cdiv(width_v, 64) * rows
        walk = walk_for("kda" if channel else "gdn", q.device, programs)
    walk = msgspec.structs.replace(walk, **changes)
    chunk = walk.chunk
    constants: dict[str, Any] = {
        "HEADS": heads,
        "GROUP": heads // q.shape[1],
        "D": width,
        "D_BLOCK": block,
        "DV": width_v,
        "DV_BLOCK": block_v,
        "CHUNK": chunk,
        "FULL": interpreting(),
    }
    starts, indices, known, accepted, verified, stride_slots = row_arguments(metadata)
    grid = heads, triton.cdiv(metadata.max_query_len, chunk), rows
    where = starts, indices, verified, stride_slots
    size = (tokens // chunk + rows) * heads * chunk
    prepare = _prepare_channels if channel else _prepare
    first, second, *prepared = prepare(inputs, size, grid, where, constants, walk)
    part = min(block_v, 256 if interpreting() else walk.rows)
    parts = triton.cdiv(width_v, part)
    walk_kernel[(heads * parts, rows)](
        first, second, *prepared, out, state,
        starts, indices, known, accepted, verified, stride_slots,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), out.stride(0), out.stride(1),
        state.stride(0), BV=part, PARTS=parts, CHANNEL=channel, **constants,
        num_warps=walk.warps, num_stages=walk.stages,
    )  # fmt: skip


def _prepare(
    inputs: Gdn,
    size: int,
    grid: tuple[int, ...],
    where: tuple[Any, ...],
    constants: dict[str, Any],
    walk: Walk,
) -> tuple[Any, ...]:
    """The walk's arguments from Q to WHOLE; size: chunk slots x heads x CHUNK."""
    q, k, v, g, beta = inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta
    parts = [size * constants["DV_BLOCK"], size * constants["D_BLOCK"], size * constants["CHUNK"]]
    scratch = q.new_empty(sum(parts)).split(parts)
    parts = [size, size, size // constants["CHUNK"]]
    factors = torch.empty(sum(parts), dtype=torch.float32, device=q.device).split(parts)
    prepare_kernel[grid](
        q, k, v, g, beta, *scratch, *factors, constant(inputs.a_log), constant(inputs.dt_bias),
        *where,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        g.stride(0), g.stride(1), beta.stride(0), beta.stride(1), inputs.scale, NORM_EPSILON,
        L2NORM=inputs.l2norm, **constants, **walk.prepare_options,
    )  # fmt: skip
    return q, k, *scratch, *factors


def _prepare_channels(
    inputs: Gdn,
    size: int,
    grid: tuple[int, ...],
    where: tuple[Any, ...],
    constants: dict[str, Any],
    walk: Walk,
) -> tuple[Any, ...]:
    """As _prepare, in two launches, for a gate per channel."""
    q, k, v, g, beta = inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta
    block, chunk = constants["D_BLOCK"], constants["CHUNK"]
    parts = [size * constants["DV_BLOCK"], size * block, size * chunk, size * block, size * block]
    *scratch, query, kept = q.new_empty(sum(parts)).split(parts)
    parts = [size * block, size // chunk * block]
    total, whole = torch.empty(sum(parts), dtype=torch.float32, device=q.device).split(parts)
    shape = {name: constants[name] for name in ("HEADS", "D", "D_BLOCK", "CHUNK")}
    totals_kernel[grid](
        g, total, constant(inputs.a_log), constant(inputs.dt_bias), *where,
        g.stride(0), g.stride(1), **shape, num_warps=4, num_stages=1,
    )  # fmt: skip
    prepare_channels_kernel[grid](
        q, k, v, beta, total, *scratch, query, kept, whole, *where,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        beta.stride(0), beta.stride(1), inputs.scale, NORM_EPSILON,
        L2NORM=inputs.l2norm, **constants, **walk.prepare_options,
    )  # fmt: skip
    return query, kept, *scratch, None, None, whole
