"""Long rows of the causal convolution: tiles of tokens, in one launch.

What bounds this kernel beside memory is how much of it is under way and how many instructions a
number takes. So a program loads sixteen tokens before it uses the first, reads the weights of a
channel at once, and keeps few channels in a thread.
"""

from __future__ import annotations

import triton
import triton.language as tl

from attnctl.kernels.triton.states.conv_pieces import (
    as_stored,
    history,
    mix,
    newest_column,
    shift_in,
    taps,
)
from attnctl.kernels.triton.states.rows import read_row


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
    WHOLE: tl.constexpr,
    PTX: tl.constexpr,
):
    """Program (part of C, row, tile of the row's tokens)."""
    c = (tl.program_id(0) * BC + tl.arange(0, BC)).to(tl.int64)
    real = c < CHANNELS
    bias = 0.0
    if BIAS is not None:
        bias = tl.load(BIAS + c, mask=real, other=0.0).to(tl.float32)
    w0, w1, w2, w3 = taps(WEIGHT, c, real, WIDTH, WHOLE)
    row = tl.program_id(1)
    first, count, slot, _, known = read_row(STARTS, SLOTS, KNOWN, None, row, stride_slots)
    begin = tl.program_id(2).to(tl.int64) * BT
    if (slot < 0) | (begin >= count):
        return
    newest = newest_column(ACCEPTED, row, LENGTH, DRAFTS)
    row_at = X + first * stride_xt + c
    state_at = STATE + slot * stride_state + c * stride_channel
    h1, h2, h3 = history(
        row_at, state_at, begin, newest, known, real, stride_xt, stride_column, WIDTH
    )
    x_at = row_at + begin * stride_xt
    out_at = OUT + (first + begin) * stride_ot + c
    for t in range(0, BT, 16):
        left = tl.minimum(count - begin, BT) - t
        a0, a1, a2, a3 = four_tokens(x_at, 0, left, real, stride_xt)
        b0, b1, b2, b3 = four_tokens(x_at, 4, left, real, stride_xt)
        c0, c1, c2, c3 = four_tokens(x_at, 8, left, real, stride_xt)
        d0, d1, d2, d3 = four_tokens(x_at, 12, left, real, stride_xt)
        h1, h2, h3 = four_outputs(
            out_at, 0, left, real, stride_ot, a0, a1, a2, a3, h1, h2, h3,
            w0, w1, w2, w3, bias, WIDTH, SILU, PTX,
        )  # fmt: skip
        h1, h2, h3 = four_outputs(
            out_at, 4, left, real, stride_ot, b0, b1, b2, b3, h1, h2, h3,
            w0, w1, w2, w3, bias, WIDTH, SILU, PTX,
        )  # fmt: skip
        h1, h2, h3 = four_outputs(
            out_at, 8, left, real, stride_ot, c0, c1, c2, c3, h1, h2, h3,
            w0, w1, w2, w3, bias, WIDTH, SILU, PTX,
        )  # fmt: skip
        h1, h2, h3 = four_outputs(
            out_at, 12, left, real, stride_ot, d0, d1, d2, d3, h1, h2, h3,
            w0, w1, w2, w3, bias, WIDTH, SILU, PTX,
        )  # fmt: skip
        x_at += 16 * stride_xt
        out_at += 16 * stride_ot
    if begin == 0:
        shift_in(
            row_at, state_at, VERIFIED, row, count, newest, known, real, stride_xt, stride_column,
            LENGTH, DRAFTS,
        )  # fmt: skip


@triton.jit
def four_tokens(x_at, place: tl.constexpr, left, real, stride_xt):
    """Tokens place to place + 3 of those from x_at on, as they are stored; zero past the last."""
    at = x_at + place * stride_xt
    return (
        tl.load(at, mask=real & (place < left), other=0.0),
        tl.load(at + stride_xt, mask=real & (place + 1 < left), other=0.0),
        tl.load(at + 2 * stride_xt, mask=real & (place + 2 < left), other=0.0),
        tl.load(at + 3 * stride_xt, mask=real & (place + 3 < left), other=0.0),
    )


@triton.jit
def four_outputs(
    out_at, place: tl.constexpr, left, real, stride_ot, x0, x1, x2, x3, h1, h2, h3,
    w0, w1, w2, w3, bias, WIDTH: tl.constexpr, SILU: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """Stores the outputs of four tokens; gives the newest three, newest first."""
    x0 = x0.to(tl.float32)
    x1 = x1.to(tl.float32)
    x2 = x2.to(tl.float32)
    x3 = x3.to(tl.float32)
    y0 = mix(x0, h1, h2, h3, w0, w1, w2, w3, bias, WIDTH, SILU, PTX)
    y1 = mix(x1, x0, h1, h2, w0, w1, w2, w3, bias, WIDTH, SILU, PTX)
    y2 = mix(x2, x1, x0, h1, w0, w1, w2, w3, bias, WIDTH, SILU, PTX)
    y3 = mix(x3, x2, x1, x0, w0, w1, w2, w3, bias, WIDTH, SILU, PTX)
    at = out_at + place * stride_ot
    tl.store(at, as_stored(y0, at), mask=real & (place < left))
    tl.store(at + stride_ot, as_stored(y1, at), mask=real & (place + 1 < left))
    tl.store(at + 2 * stride_ot, as_stored(y2, at), mask=real & (place + 2 < left))
    tl.store(at + 3 * stride_ot, as_stored(y3, at), mask=real & (place + 3 < left))
    return x3, x2, x1
