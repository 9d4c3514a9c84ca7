"""The causal convolution in Triton, in one launch.

A program walks the tokens of its channels, each channel in one thread from first to last, so that
every token is read once and reading and writing the same columns cannot race. Long rows are cut in
tiles of tokens (conv_tiles); the program of a row's first tile, which alone reads the old state,
also shifts the last tokens in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.states.knobs import CHUNKS, NO_KNOBS, STEPS, of_chunks
from attnctl.kernels.triton.states.conv_pieces import (
    as_stored,
    history,
    mix,
    newest_column,
    shift_in,
    taps,
)
from attnctl.kernels.triton.states.conv_tiles import tiles_kernel
from attnctl.kernels.triton.states.launch import has_ptx
from attnctl.kernels.triton.states.rows import (
    blocks,
    constant,
    dense,
    empty,
    interpreting,
    power_of_2,
    read_row,
    row_arguments,
)
from attnctl.ops.short_conv import ShortConv
from attnctl.runtime import StateMetadata

SHORT = 8
"""Tokens per row up to which one launch walks them."""

PART = 256
WARPS = 2
"""Channels of a program that walks short rows, and its warps: the fastest of eight pairs for
decoding 1, 64 and 256 rows on an H200, or within 2 % of it."""


@triton.jit
def short_rows_kernel(
    X,
    WEIGHT,
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
    stride_ot,
    stride_state,
    stride_column,
    stride_channel,
    CHANNELS: tl.constexpr,
    BC: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    DRAFTS: tl.constexpr,
    SILU: tl.constexpr,
    WHOLE: tl.constexpr,
    PTX: tl.constexpr,
    LAST: tl.constexpr,
    ONE: tl.constexpr,
):
    """Program (part of C, row).

    LAST: every row keeps only its last WIDTH - 1 tokens, and the state has no older ones.
    """
    c = (tl.program_id(0) * BC + tl.arange(0, BC)).to(tl.int64)
    real = c < CHANNELS
    bias = 0.0
    if BIAS is not None:
        bias = tl.load(BIAS + c, mask=real, other=0.0).to(tl.float32)
    w0, w1, w2, w3 = taps(WEIGHT, c, real, WIDTH, WHOLE)
    row = tl.program_id(1)
    # a conv state has one slot per row: the rejected drafts are columns of it
    first, count, slot, _, known = read_row(STARTS, SLOTS, KNOWN, None, row, stride_slots)
    if (slot < 0) | (count <= 0):
        return
    newest = newest_column(ACCEPTED, row, LENGTH, DRAFTS)
    x_at = X + first * stride_xt + c
    state_at = STATE + slot * stride_state + c * stride_channel
    h1, h2, h3 = history(x_at, state_at, 0, newest, known, real, stride_xt, stride_column, WIDTH)
    out_at = OUT + first * stride_ot + c
    steps = count
    if ONE:
        # no row is longer: without a loop the token is loaded beside those before it
        steps = 1
    for t in range(steps):
        x = tl.load(x_at + t * stride_xt, mask=real, other=0.0).to(tl.float32)
        y = mix(x, h1, h2, h3, w0, w1, w2, w3, bias, WIDTH, SILU, PTX)
        tl.store(out_at + t * stride_ot, as_stored(y, OUT), mask=real)
        h3 = h2
        h2 = h1
        h1 = x
    if LAST:
        # the last tokens are in registers and are the whole new state
        tl.store(state_at + (LENGTH - 1 - DRAFTS) * stride_column, as_stored(h1, STATE), mask=real)
        if WIDTH > 2:
            at = state_at + (LENGTH - 2 - DRAFTS) * stride_column
            tl.store(at, as_stored(h2, STATE), mask=real)
        if WIDTH > 3:
            at = state_at + (LENGTH - 3 - DRAFTS) * stride_column
            tl.store(at, as_stored(h3, STATE), mask=real)
        return
    shift_in(
        x_at, state_at, VERIFIED, row, count, newest, known, real, stride_xt, stride_column,
        LENGTH, DRAFTS,
    )  # fmt: skip


def forward(
    inputs: ShortConv,
    state: Tensor,
    metadata: StateMetadata,
    out: Tensor,
    knobs: Mapping[str, Any] = NO_KNOBS,
) -> None:
    """out: [T, C]; state: [slots, L, C] with any strides, in place."""
    if empty(out, metadata):
        return
    x, weight = dense(inputs.x), constant(inputs.weight)
    channels, width = weight.shape
    rows, longest = metadata.state_indices.shape[0], metadata.max_query_len
    arguments = (
        x, weight, constant(inputs.bias), out, state, *row_arguments(metadata),
        x.stride(0), out.stride(0), *state.stride(),
    )  # fmt: skip
    constants: dict[str, Any] = {
        "CHANNELS": channels,
        "WIDTH": width,
        "LENGTH": state.shape[1],
        "DRAFTS": metadata.num_spec,
        "SILU": inputs.activation == "silu",
        "WHOLE": width == 4 and weight.itemsize == 2 and weight.data_ptr() % 8 == 0,
        "PTX": has_ptx(x.device),
        "num_stages": 1,
    }
    if longest > SHORT and STEPS not in knobs:
        own = {**CHUNKS["short_conv"], **of_chunks(knobs)}
        part, tokens = part_of(channels, own["part"]), own["tokens"]
        tiles = blocks(channels, part), rows, blocks(longest, tokens)
        tiles_kernel[tiles](*arguments, BC=part, BT=tokens, num_warps=own["warps"], **constants)
        return
    part = part_of(channels, knobs.get("tile", PART))
    constants["LAST"] = (
        metadata.speculative is None and state.shape[1] - metadata.num_spec == width - 1
    )
    short_rows_kernel[blocks(channels, part), rows](
        *arguments, BC=part, ONE=longest == 1, num_warps=knobs.get("warps", WARPS), **constants
    )


def part_of(channels: int, most: int) -> int:
    """Channels of one program; many in the interpreter, where a program costs the same."""
    return min(power_of_2(channels), 1024 if interpreting() else most)
