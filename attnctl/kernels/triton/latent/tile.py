"""What the kernels of latent attention share: rows of a cache as numbers, and one step of softmax.

A tile packs BLOCK_M heads of one query token against TILE cached rows. A row is read once: its
latent part is key and value both. Latent and rope parts are products of their own (512 + 64), so
that 576 columns are not padded to 1024. FP8 is read as bytes and widened by shifts: float16 has
both formats' exponents, so this is exact, needs no FP8 hardware, and runs in the interpreter.
Logits are in units of log2(e). Addresses are 64-bit.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def find_sequence(STARTS, token, sequences):
    """The sequence that owns a query token; empty sequences own none."""
    low = 0
    high = sequences
    while low < high:
        middle = (low + high) // 2
        if tl.load(STARTS + middle) <= token:
            low = middle + 1
        else:
            high = middle
    return low - 1


@triton.jit
def find_tile(STARTS, tile, sequences, BLOCK_M: tl.constexpr):
    """The sequence of a query tile, where sequence b's first is starts[b] // BLOCK_M + b."""
    low = 0
    high = sequences
    while low < high:
        middle = (low + high) // 2
        if tl.load(STARTS + middle) // BLOCK_M + middle <= tile:
            low = middle + 1
        else:
            high = middle
    return low - 1


@triton.jit
def widen_fp8(value, FORMAT: tl.constexpr):
    """float16 of bytes: FORMAT 1 is float8_e4m3fn (finite values), 2 is float8_e5m2.

    FORMAT 3 is 1 by the conversion that NVIDIA's GPUs have from 8.9 on.
    """
    if FORMAT == 3:
        return value.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    wide = value.to(tl.uint16)
    if FORMAT == 2:
        return (wide << 8).to(tl.float16, bitcast=True)
    # the exponent's bias is 7 there and 15 here: 2^8, subnormals included
    bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
    return bits.to(tl.float16, bitcast=True) * 256.0


@triton.jit
def load_columns(
    BASE,
    rows,
    inside,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """[rows, BLOCK] in DTYPE: WIDTH columns of each row, 0 beyond them and in rows not inside."""
    column = tl.arange(0, BLOCK)
    pointers = BASE + rows[:, None] + column[None, :]
    if BLOCK > WIDTH:
        value = tl.load(pointers, mask=inside[:, None] & (column < WIDTH)[None, :], other=0)
    else:
        value = tl.load(pointers, mask=inside[:, None], other=0)
    if FORMAT > 0:
        value = widen_fp8(value, FORMAT)
    return value.to(DTYPE)


@triton.jit
def load_query(
    Q,
    rows,
    real,
    L: tl.constexpr,
    L_BLOCK: tl.constexpr,
    R: tl.constexpr,
    R_BLOCK: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """The latent and the rope part of a tile's query rows, 0 in heads that do not exist.

    In the interpreter they are float32, and with them all arithmetic: bfloat16 has none there.
    """
    DTYPE: tl.constexpr = tl.float32 if INTERPRET else Q.dtype.element_ty
    q = load_columns(Q, rows, real, L, L_BLOCK, 0, DTYPE)
    q_rope = q
    if R > 0:
        q_rope = load_columns(Q + L, rows, real, R, R_BLOCK, 0, DTYPE)
    return q, q_rope


@triton.jit
def multiply_columns(
    Q,
    LATENT,
    SCALES,
    rows_q,
    real,
    rows,
    rows_scale,
    seen,
    TILE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    L: tl.constexpr,
    L_BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    PRECISION: tl.constexpr,
    COLUMNS: tl.constexpr = 64,
):
    """Logits of float32 query rows, [BLOCK_M, TILE], COLUMNS columns at a time.

    NVIDIA's matrix unit cuts float32 sums off instead of rounding them, always towards zero: over
    512 columns a log-sum-exp is off by ten times what rounding would leave. What sums of COLUMNS
    columns come to is therefore added outside it. Both are loaded once more for that: cut out of
    whole rows they would take more shared memory than a block of 99 KiB has left.
    """
    WIDE: tl.constexpr = COLUMNS if L_BLOCK > COLUMNS else L_BLOCK
    # not known before the loop: loaded there, all of the query would lie in shared memory at once
    real = real & (tl.max(seen.to(tl.int32), 0) > 0)
    s = tl.zeros([BLOCK_M, TILE], tl.float32)
    for part in tl.static_range(L_BLOCK // WIDE):
        q = load_columns(Q + part * WIDE, rows_q, real, L - part * WIDE, WIDE, 0, tl.float32)
        k = load_columns(
            LATENT + part * WIDE, rows, seen, L - part * WIDE, WIDE, FORMAT, tl.float32
        )
        if SCALES is not None:
            at = rows_scale + part * WIDE // 128
            k *= tl.load(SCALES + at, mask=seen, other=0.0)[:, None]
        s += tl.dot(q, tl.trans(k), input_precision=PRECISION)
    return s


@triton.jit
def attend_rows(
    Q,
    rows_q,
    real,
    q,
    q_rope,
    acc,
    top,
    total,
    LATENT,
    ROPE,
    SCALES,
    rows,
    rows_rope,
    rows_scale,
    seen,
    factor,
    TILE: tl.constexpr,
    L: tl.constexpr,
    L_BLOCK: tl.constexpr,
    R: tl.constexpr,
    R_BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """TILE cached rows added to the running sum, top and total; rows not seen are not read.

    SCALES: packed rows, whose latent part is FP8 with one scale per 128 columns and whose rope part
    is not FP8.
    """
    k = load_columns(LATENT, rows, seen, L, L_BLOCK, FORMAT, q.dtype)
    if SCALES is not None:
        group = tl.arange(0, L_BLOCK // 128)
        keep = seen[:, None] & (group < L // 128)[None, :]
        scale = tl.load(SCALES + rows_scale[:, None] + group[None, :], mask=keep, other=0.0)
        groups = tl.reshape(k, [TILE, L_BLOCK // 128, 128]).to(tl.float32) * scale[:, :, None]
        k = tl.reshape(groups, [TILE, L_BLOCK]).to(q.dtype)
    if PRECISION == "tf32x3":
        s = multiply_columns(
            Q, LATENT, SCALES, rows_q, real, rows, rows_scale, seen,
            TILE, q.shape[0], L, L_BLOCK, FORMAT, PRECISION,
        )  # fmt: skip
    else:
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if R > 0:
        ROPE_FORMAT: tl.constexpr = FORMAT if SCALES is None else 0
        r = load_columns(ROPE, rows_rope, seen, R, R_BLOCK, ROPE_FORMAT, q.dtype)
        s = tl.dot(q_rope, tl.trans(r), acc=s, input_precision=PRECISION)
    s = tl.where(seen[None, :], s * factor, float("-inf"))
    new_top = tl.maximum(top, tl.max(s, 1))
    # a row that has seen nothing yet: -inf - -inf would be NaN
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    p = tl.exp2(s - shift[:, None])
    fade = tl.exp2(top - shift)
    total = total * fade + tl.sum(p, 1)
    acc = tl.dot(p.to(q.dtype), k, acc=acc * fade[:, None], input_precision=PRECISION)
    return acc, new_top, total


@triton.jit
def store_state(
    OUT,
    LSE,
    PART,
    PART_LSE,
    acc,
    top,
    total,
    token,
    head,
    real,
    stride_ot,
    stride_oh,
    stride_st,
    stride_sh,
    v_scale,
    segment,
    segments,
    HEADS: tl.constexpr,
    L: tl.constexpr,
    L_BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Writes a tile's output and log-sum-exp: final ones, or where SPLIT those of a segment.

    A segment that saw nothing leaves PART_LSE -inf and its part unwritten.
    """
    safe = tl.where(total > 0.0, total, 1.0)
    lse = tl.where(total > 0.0, top + tl.log2(safe), float("-inf"))
    column = tl.arange(0, L_BLOCK)
    value = acc * (v_scale / safe)[:, None]
    if SPLIT:
        at = (token * HEADS + head) * segments + segment
        tl.store(PART_LSE + at, lse, mask=real)
        keep = (real & (total > 0.0))[:, None] & (column < L)[None, :]
        tl.store(PART + at[:, None] * L + column[None, :], value, mask=keep)
    else:
        rows = token * stride_ot + head.to(tl.int64) * stride_oh
        keep = real[:, None] & (column < L)[None, :]
        tl.store(OUT + rows[:, None] + column[None, :], value.to(OUT.dtype.element_ty), mask=keep)
        if LSE is not None:
            at = token * stride_st + head.to(tl.int64) * stride_sh
            tl.store(LSE + at, lse * 0.6931471805599453, mask=real)
