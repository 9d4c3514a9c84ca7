"""What both kernels of the causal convolution share: history, taps, the new state."""

from __future__ import annotations

import triton
import triton.language as tl

from attnctl.kernels.triton.states.rows import keeps_all, silu


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
def taps(WEIGHT, c, real, WIDTH: tl.constexpr, WHOLE: tl.constexpr):
    """Weights of a token and of the first, second and third before it, in float32.

    Those past WIDTH repeat others. WHOLE: a channel has four of 16 bits, read as one number.
    """
    if WHOLE:
        four = tl.load(WEIGHT.to(tl.pointer_type(tl.int64)) + c, mask=real, other=0)
        return (
            _quarter(four, 3, WEIGHT.dtype.element_ty),
            _quarter(four, 2, WEIGHT.dtype.element_ty),
            _quarter(four, 1, WEIGHT.dtype.element_ty),
            _quarter(four, 0, WEIGHT.dtype.element_ty),
        )
    at = WEIGHT + c * WIDTH + WIDTH - 1
    w0 = tl.load(at, mask=real, other=0.0).to(tl.float32)
    w1 = tl.load(at - 1, mask=real, other=0.0).to(tl.float32)
    w2 = w1
    w3 = w1
    if WIDTH > 2:
        w2 = tl.load(at - 2, mask=real, other=0.0).to(tl.float32)
    if WIDTH > 3:
        w3 = tl.load(at - 3, mask=real, other=0.0).to(tl.float32)
    return w0, w1, w2, w3


@triton.jit
def _quarter(four, place: tl.constexpr, kind: tl.constexpr):
    return (four >> (16 * place)).to(tl.int16).to(kind, bitcast=True).to(tl.float32)


@triton.jit
def history(
    x_at, state_at, begin, newest, known, real, stride_xt, stride_column, WIDTH: tl.constexpr
):
    """Channels of the first, second and third place before `begin`; those past WIDTH repeat."""
    h1 = token_or_state(x_at, state_at, begin - 1, newest, known, real, stride_xt, stride_column)
    h2 = h1
    h3 = h1
    if WIDTH > 2:
        h2 = token_or_state(
            x_at, state_at, begin - 2, newest, known, real, stride_xt, stride_column
        )
    if WIDTH > 3:
        h3 = token_or_state(
            x_at, state_at, begin - 3, newest, known, real, stride_xt, stride_column
        )
    return h1, h2, h3


@triton.jit
def as_stored(value, POINTER):
    """The value in the type that the pointer (or tensor of pointers) points at."""
    return value.to(POINTER.dtype.scalar.element_ty)


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
        tl.store(at, as_stored(value, state_at), mask=real & (column < LENGTH))


@triton.jit
def mix(
    x, h1, h2, h3, w0, w1, w2, w3, bias,
    WIDTH: tl.constexpr, SILU: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """The output of a token from it and those before it, newest first."""
    y = bias + x * w0 + h1 * w1
    if WIDTH > 2:
        y += h2 * w2
    if WIDTH > 3:
        y += h3 * w3
    if SILU:
        if PTX:
            y = silu_ptx(y)
        else:
            y = silu(y)
    return y


@triton.jit
def silu_ptx(x):
    """silu in five instructions instead of eleven, as exact: subnormal steps between are zero."""
    return tl.inline_asm_elementwise(
        """
        {
            .reg .f32 t;
            mul.f32 t, $1, 0fBFB8AA3B;
            ex2.approx.ftz.f32 t, t;
            add.f32 t, t, 0f3F800000;
            rcp.approx.ftz.f32 t, t;
            mul.f32 $0, $1, t;
        }
        """,
        "=f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )
