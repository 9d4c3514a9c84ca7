"""The causal convolution in Triton, in one launch.

A program walks the tokens of its channels, each channel in one thread from first to last, so that
every token is read once and reading and writing the same columns cannot race. Long rows are cut in
tiles of tokens; the program of a row's first tile, which alone reads the old state, also shifts the
last tokens in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.state_knobs import CHUNKS, NO_KNOBS, STEPS, of_chunks
from attnctl.kernels.triton.state_rows import (
    constant,
    dense,
    empty,
    interpreting,
    keeps_all,
    read_row,
    row_arguments,
    silu,
)
from attnctl.ops.short_conv import ShortConv
from attnctl.runtime import StateMetadata

SHORT = 8
"""Tokens per row up to which one launch walks them."""

PART = 128
WARPS = 2


@triton.jit
def newest_column(ACCEPTED, row, LENGTH: tl.constexpr, DRAFTS: tl.constexpr):
    """The state's column of the token just before this batch's first."""
    newest = LENGTH - 1 - DRAFTS
    if ACCEPTED is not None:
        newest += tl.load(ACCEPTED + row) - 1
    return newest


@triton.jit
def token_or_state(X, STATE, place, newest, known, real, stride_xt, stride_column):
    """Channels of place 0, 1, ... of a row's tokens (X points at its first), or of -1, -2, ..."""
    token = tl.load(X + place * stride_xt, mask=real & (place >= 0), other=0.0)
    old = tl.load(
        STATE + (newest + 1 + place) * stride_column,
        mask=real & (place < 0) & known & (newest + 1 + place >= 0),
        other=0.0,
    )
    return tl.where(place >= 0, token.to(tl.float32), old.to(tl.float32))


@triton.jit
def tap(WEIGHT, c, back: tl.constexpr, real, WIDTH: tl.constexpr):
    """The weight of the token `back` places before, in float32."""
    at = WEIGHT + c * WIDTH + WIDTH - 1 - back
    return tl.load(at, mask=real, other=0.0).to(tl.float32)


@triton.jit
def shift_in(
    x_at,
    state_at,
    VERIFIED,
    row,
    count,
    newest,
    known,
    real,
    stride_xt,
    stride_column,
    LENGTH: tl.constexpr,
    DRAFTS: tl.constexpr,
):
    """Leaves a row's newest tokens in its state: up to the anchor, or with the drafts behind it."""
    kept = LENGTH - DRAFTS
    if VERIFIED is not None:
        kept = tl.where(keeps_all(VERIFIED, row) != 0, kept + count - 1, kept)
    for column in range(kept):
        # every source lies behind its target, so going forward overwrites nothing still needed
        place = count.to(tl.int64) + column - kept
        value = token_or_state(x_at, state_at, place, newest, known, real, stride_xt, stride_column)
        at = state_at + column * stride_column
        tl.store(at, _as(value, state_at), mask=real & (column < LENGTH))


@triton.jit
def mix(x, h1, h2, h3, w0, w1, w2, w3, bias, WIDTH: tl.constexpr, SILU: tl.constexpr):
    """The output of a token from it and those before it, newest first."""
    y = bias + x * w0 + h1 * w1
    if WIDTH > 2:
        y += h2 * w2
    if WIDTH > 3:
        y += h3 * w3
    if SILU:
        y = silu(y)
    return y


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
    LAST: tl.constexpr,
):
    """Program (part of C, row).

    LAST: every row keeps only its last WIDTH - 1 tokens, and the state has no older ones.
    """
    row = tl.program_id(1)
    # a conv state has one slot per row: the rejected drafts are columns of it
    first, count, slot, _, known = read_row(STARTS, SLOTS, KNOWN, None, row, stride_slots)
    if (slot < 0) | (count <= 0):
        return
    newest = newest_column(ACCEPTED, row, LENGTH, DRAFTS)
    c = (tl.program_id(0) * BC + tl.arange(0, BC)).to(tl.int64)
    real = c < CHANNELS
    x_at = X + first * stride_xt + c
    state_at = STATE + slot * stride_state + c * stride_channel
    bias = 0.0
    if BIAS is not None:
        bias = tl.load(BIAS + c, mask=real, other=0.0).to(tl.float32)
    w0 = tap(WEIGHT, c, 0, real, WIDTH)
    w1 = tap(WEIGHT, c, 1, real, WIDTH)
    h1 = token_or_state(x_at, state_at, -1, newest, known, real, stride_xt, stride_column)
    w2 = w1
    h2 = h1
    w3 = w1
    h3 = h1
    if WIDTH > 2:
        w2 = tap(WEIGHT, c, 2, real, WIDTH)
        h2 = token_or_state(x_at, state_at, -2, newest, known, real, stride_xt, stride_column)
    if WIDTH > 3:
        w3 = tap(WEIGHT, c, 3, real, WIDTH)
        h3 = token_or_state(x_at, state_at, -3, newest, known, real, stride_xt, stride_column)
    out_at = OUT + first * stride_ot + c
    for t in range(count):
        x = tl.load(x_at + t * stride_xt, mask=real, other=0.0).to(tl.float32)
        y = mix(x, h1, h2, h3, w0, w1, w2, w3, bias, WIDTH, SILU)
        tl.store(out_at + t * stride_ot, y.to(OUT.dtype.element_ty), mask=real)
        h3 = h2
        h2 = h1
        h1 = x
    if LAST:
        # the last tokens are in registers and are the whole new state
        tl.store(state_at + (LENGTH - 1 - DRAFTS) * stride_column, _as(h1, STATE), mask=real)
        if WIDTH > 2:
            at = state_at + (LENGTH - 2 - DRAFTS) * stride_column
            tl.store(at, _as(h2, STATE), mask=real)
        if WIDTH > 3:
            at = state_at + (LENGTH - 3 - DRAFTS) * stride_column
            tl.store(at, _as(h3, STATE), mask=real)
        return
    shift_in(
        x_at, state_at, VERIFIED, row, count, newest, known, real, stride_xt, stride_column,
        LENGTH, DRAFTS,
    )  # fmt: skip


@triton.jit
def _as(value, POINTER):
    """The value in the type that the pointer (or tensor of pointers) points at."""
    return value.to(POINTER.dtype.scalar.element_ty)


@triton.jit
def tiles_kernel(
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
    BT: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    DRAFTS: tl.constexpr,
    SILU: tl.constexpr,
):
    """Program (part of C, row, tile of the row's tokens)."""
    row = tl.program_id(1)
    first, count, slot, _, known = read_row(STARTS, SLOTS, KNOWN, None, row, stride_slots)
    begin = tl.program_id(2).to(tl.int64) * BT
    if (slot < 0) | (begin >= count):
        return
    newest = newest_column(ACCEPTED, row, LENGTH, DRAFTS)
    c = (tl.program_id(0) * BC + tl.arange(0, BC)).to(tl.int64)
    real = c < CHANNELS
    x_at = X + first * stride_xt + c
    out_at = OUT + first * stride_ot + c
    state_at = STATE + slot * stride_state + c * stride_channel
    bias = 0.0
    if BIAS is not None:
        bias = tl.load(BIAS + c, mask=real, other=0.0).to(tl.float32)
    w0 = tap(WEIGHT, c, 0, real, WIDTH)
    w1 = tap(WEIGHT, c, 1, real, WIDTH)
    h1 = token_or_state(x_at, state_at, begin - 1, newest, known, real, stride_xt, stride_column)
    w2 = w1
    h2 = h1
    w3 = w1
    h3 = h1
    if WIDTH > 2:
        w2 = tap(WEIGHT, c, 2, real, WIDTH)
        h2 = token_or_state(
            x_at, state_at, begin - 2, newest, known, real, stride_xt, stride_column
        )
    if WIDTH > 3:
        w3 = tap(WEIGHT, c, 3, real, WIDTH)
        h3 = token_or_state(
            x_at, state_at, begin - 3, newest, known, real, stride_xt, stride_column
        )
    x_at += begin * stride_xt
    out_at += begin * stride_ot
    for t in range(0, BT, 4):
        # four tokens are under way at once: a load may not pass the store before it
        left = count - begin - t
        x0 = _token(x_at, 0, left, real, stride_xt)
        x1 = _token(x_at, 1, left, real, stride_xt)
        x2 = _token(x_at, 2, left, real, stride_xt)
        x3 = _token(x_at, 3, left, real, stride_xt)
        y0 = mix(x0, h1, h2, h3, w0, w1, w2, w3, bias, WIDTH, SILU)
        y1 = mix(x1, x0, h1, h2, w0, w1, w2, w3, bias, WIDTH, SILU)
        y2 = mix(x2, x1, x0, h1, w0, w1, w2, w3, bias, WIDTH, SILU)
        y3 = mix(x3, x2, x1, x0, w0, w1, w2, w3, bias, WIDTH, SILU)
        tl.store(out_at, _as(y0, OUT), mask=real & (left > 0))
        tl.store(out_at + stride_ot, _as(y1, OUT), mask=real & (left > 1))
        tl.store(out_at + 2 * stride_ot, _as(y2, OUT), mask=real & (left > 2))
        tl.store(out_at + 3 * stride_ot, _as(y3, OUT), mask=real & (left > 3))
        x_at += 4 * stride_xt
        out_at += 4 * stride_ot
        h1 = x3
        h2 = x2
        h3 = x1
    if begin == 0:
        x_at = X + first * stride_xt + c
        shift_in(
            x_at, state_at, VERIFIED, row, count, newest, known, real, stride_xt, stride_column,
            LENGTH, DRAFTS,
        )  # fmt: skip


@triton.jit
def _token(x_at, place: tl.constexpr, left, real, stride_xt):
    """Token `place` of those from x_at on, in float32; zero past the last."""
    return tl.load(x_at + place * stride_xt, mask=real & (place < left), other=0.0).to(tl.float32)


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
    x = dense(inputs.x)
    channels, width = inputs.weight.shape
    rows, longest = metadata.state_indices.shape[0], metadata.max_query_len
    most = 1024 if interpreting() else knobs.get("tile", PART)
    part = min(triton.next_power_of_2(channels), most)
    arguments = (
        x, constant(inputs.weight), constant(inputs.bias), out, state, *row_arguments(metadata),
        x.stride(0), out.stride(0), *state.stride(),
    )  # fmt: skip
    constants: dict[str, Any] = {
        "CHANNELS": channels,
        "WIDTH": width,
        "LENGTH": state.shape[1],
        "DRAFTS": metadata.num_spec,
        "SILU": inputs.activation == "silu",
        "num_stages": 1,
    }
    if longest > SHORT and STEPS not in knobs:
        own = {**CHUNKS["short_conv"], **of_chunks(knobs)}
        whole = triton.next_power_of_2(channels)
        tile, tokens = part if interpreting() else min(whole, own["part"]), own["tokens"]
        tiles = triton.cdiv(channels, tile), rows, triton.cdiv(longest, tokens)
        tiles_kernel[tiles](*arguments, BC=tile, BT=tokens, num_warps=own["warps"], **constants)
        return
    grid = triton.cdiv(channels, part), rows
    last = metadata.speculative is None and state.shape[1] - metadata.num_spec == width - 1
    warps = knobs.get("warps", WARPS)
    short_rows_kernel[grid](*arguments, BC=part, LAST=last, num_warps=warps, **constants)
