"""What the attention kernels share: which keys a query tile sees, and the loop over key tiles.

A tile packs BLOCK_M rows: row m is query token m // HEADS and query head m % HEADS of one KV head's
group, so that every ratio H / Hk fills the matrix unit and each K and V tile is read once a group.
Widths that are no power of two are cut in a low and a high part (192 = 128 + 64), each a product
of its own. Logits are kept in units of log2(e): exp2 is the instruction that the hardware has.
What a layer has none of (a window, sinks, ...) is None and leaves no code behind.
Addresses are 64-bit: page ids and token indices are widened before they meet a stride.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def find_sequence(STARTS, tile, sequences, BLOCK_Q: tl.constexpr):
    """The sequence that owns this query tile, where sequence b's first is starts[b]/BLOCK_Q + b."""
    low = 0
    high = sequences
    while low < high:
        middle = (low + high) // 2
        if tl.load(STARTS + middle) // BLOCK_Q + middle <= tile:
            low = middle + 1
        else:
            high = middle
    return low - 1


@triton.jit
def tile_rows(
    group_part, q_first, q_len, BLOCK_M: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr
):
    """Query index in the sequence and head in the group of each row, and whether the row exists."""
    row = tl.arange(0, BLOCK_M)
    q_index = q_first + row // HEADS
    in_group = group_part * HEADS + row % HEADS
    real = (row < BLOCK_M // HEADS * HEADS) & (q_index < q_len) & (in_group < GROUP)
    return q_index, in_group, real


@triton.jit
def key_bounds(
    first,
    last,
    length,
    window,
    window_right,
    chunk,
    RANGES,
    ranges,
    TILE: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Keys that some row at first..last sees, and within them the tiles that every row sees whole.

    Gives lo, full_lo, full_hi, hi: [lo, hi) holds every visible key, [full_lo, full_hi) needs no
    mask and starts and ends on a tile's edge.
    """
    lo = 0
    hi = length
    full_lo = 0
    full_hi = length
    if CAUSAL:
        hi = tl.minimum(hi, last + 1)
        full_hi = tl.minimum(full_hi, first + 1)
    if window_right is not None:
        hi = tl.minimum(hi, last + window_right + 1)
        full_hi = tl.minimum(full_hi, first + window_right + 1)
    if window is not None:
        # a window of 0 shows nothing, not the keys between the first and the last row
        lo = tl.where(window > 0, tl.maximum(lo, first - window + 1), length)
        full_lo = tl.maximum(full_lo, last - window + 1)
    if chunk is not None:
        lo = tl.maximum(lo, tl.maximum(first, 0) // chunk * chunk)
        hi = tl.minimum(hi, (tl.maximum(last, -1) // chunk + 1) * chunk)
        full_lo = tl.maximum(full_lo, tl.maximum(last, 0) // chunk * chunk)
        full_hi = tl.minimum(full_hi, (tl.maximum(first, 0) // chunk + 1) * chunk)
    if RANGES is not None:
        # outside [first, last] a range shows nothing to these rows; within it may reach both ways
        for index in range(ranges):
            begin = tl.load(RANGES + 2 * index)
            end = tl.load(RANGES + 2 * index + 1)
            touches = (begin < end) & (begin <= last) & (end > first)
            lo = tl.where(touches, tl.minimum(lo, begin), lo)
            hi = tl.where(touches, tl.maximum(hi, end), hi)
    lo = tl.maximum(lo, 0)
    hi = tl.maximum(tl.minimum(hi, length), lo)
    # the quotient of a negative number would round towards zero
    full_lo = tl.minimum(tl.cdiv(full_lo, TILE) * TILE, tl.cdiv(hi, TILE) * TILE)
    full_hi = tl.maximum(tl.maximum(full_hi, 0) // TILE * TILE, full_lo)
    return lo, full_lo, tl.minimum(full_hi, tl.maximum(full_lo, hi // TILE * TILE)), hi


@triton.jit
def visible(
    i,
    j,
    lo,
    hi,
    window,
    window_right,
    chunk,
    RANGES,
    ranges,
    CAUSAL: tl.constexpr,
):
    """[M, TILE] bool: which of the keys at j each row at position i sees."""
    inside = (j >= lo) & (j < hi)
    seen = (i[:, None] == i[:, None]) & inside[None, :]
    if CAUSAL:
        seen = seen & (j[None, :] <= i[:, None])
    if window is not None:
        seen = seen & (j[None, :] > i[:, None] - window)
    if window_right is not None:
        seen = seen & (j[None, :] <= i[:, None] + window_right)
    if chunk is not None:
        seen = seen & (i >= 0)[:, None] & ((j // chunk)[None, :] == (i // chunk)[:, None])
    if RANGES is not None:
        for index in range(ranges):
            begin = tl.load(RANGES + 2 * index)
            end = tl.load(RANGES + 2 * index + 1)
            ours = (i >= begin) & (i < end)
            theirs = inside & (j >= begin) & (j < end)
            seen = seen | (ours[:, None] & theirs[None, :])
    return seen


@triton.jit
def load_part(
    base,
    rows,
    stride,
    keep,
    OFFSET: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    MASKED: tl.constexpr,
):
    """[rows, BLOCK]: columns OFFSET.. of a matrix WIDTH wide, 0 beyond it and where not kept."""
    column = OFFSET + tl.arange(0, BLOCK)
    pointers = base + rows[:, None] + column[None, :] * stride
    return load_at(pointers, column, keep, OFFSET + BLOCK > WIDTH, WIDTH, MASKED)


@triton.jit
def load_at(
    pointers, column, keep, PADDED: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr
):
    """What lies at the pointers, 0 in columns beyond WIDTH and in rows not kept."""
    if PADDED:
        if MASKED:
            return tl.load(pointers, mask=keep[:, None] & (column < WIDTH)[None, :], other=0.0)
        return tl.load(pointers, mask=(column < WIDTH)[None, :], other=0.0)
    if MASKED:
        return tl.load(pointers, mask=keep[:, None], other=0.0)
    return tl.load(pointers)


@triton.jit
def load_pages(
    TABLE, start, last, hi, PAGE: tl.constexpr, TILE: tl.constexpr, MASKED: tl.constexpr
):
    """The page id of each key of the tile at start, or at last where that comes first.

    One number where a page holds whole tiles.
    """
    start = tl.minimum(start, last)
    if PAGE % TILE == 0:
        if MASKED:
            pages = tl.load(TABLE + start // PAGE, mask=start < hi, other=0)
        else:
            pages = tl.load(TABLE + start // PAGE)
    else:
        if TILE % PAGE == 0:
            pointers = TABLE + tl.arange(0, TILE) // PAGE + start // PAGE
        else:
            pointers = TABLE + (start + tl.arange(0, TILE)) // PAGE
        if MASKED:
            pages = tl.load(pointers, mask=start + tl.arange(0, TILE) < hi, other=0)
        else:
            pages = tl.load(pointers)
    return pages


@triton.jit
def load_keys(
    base,
    stride_n,
    stride_p,
    stride_d,
    pages,
    start,
    inside,
    OFFSET: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    MASKED: tl.constexpr,
):
    """[TILE, BLOCK]: columns OFFSET.. of the tile's rows of a paged cache, one KV head.

    Written so that all of an address but the page is the same in every tile, where it can be: the
    compiler moves that out of the loop, which is a third of the loop's instructions.
    """
    offset = tl.arange(0, TILE)
    column = OFFSET + tl.arange(0, BLOCK)
    if PAGE % TILE == 0:
        row = offset.to(tl.int64) * stride_p
        shift = pages.to(tl.int64) * stride_n + (start % PAGE).to(tl.int64) * stride_p
        pointers = base + row[:, None] + column[None, :] * stride_d + shift
    else:
        if TILE % PAGE == 0:
            row = (offset % PAGE).to(tl.int64) * stride_p
        else:
            row = ((start + offset) % PAGE).to(tl.int64) * stride_p
        shift = pages.to(tl.int64) * stride_n
        pointers = base + row[:, None] + column[None, :] * stride_d + shift[:, None]
    return load_at(pointers, column, inside, OFFSET + BLOCK > WIDTH, WIDTH, MASKED)


@triton.jit
def widen(x, q):
    """x in the query's dtype."""
    if x.dtype.is_fp8() and q.dtype == tl.bfloat16:
        # FP8 to bfloat16 in one step runs on a unit a quarter as wide, half the time of a decode
        x = x.to(tl.float16).to(tl.float32)
    return x.to(q.dtype)


@triton.jit
def attend(
    q,
    q_high,
    acc,
    acc_high,
    top,
    total,
    position,
    slope,
    begin,
    end,
    lo,
    hi,
    K,
    V,
    TABLE,
    K_DESC,
    K_DESC_HIGH,
    V_DESC,
    V_DESC_HIGH,
    desc_page_k,
    desc_page_v,
    desc_row_k,
    desc_row_v,
    desc_column_k,
    desc_column_v,
    K_SCALES,
    V_SCALES,
    stride_kn,
    stride_kp,
    stride_kd,
    stride_vn,
    stride_vp,
    stride_vd,
    stride_ksn,
    stride_ksp,
    stride_vsn,
    stride_vsp,
    factor,
    cap,
    window,
    window_right,
    chunk,
    RANGES,
    ranges,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    D: tl.constexpr,
    D_LOW: tl.constexpr,
    D_HIGH: tl.constexpr,
    DV: tl.constexpr,
    V_LOW: tl.constexpr,
    V_HIGH: tl.constexpr,
    CAUSAL: tl.constexpr,
    PLAIN: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Keys begin..end (begin on a tile's edge) added to the running sum, top and total of a tile.

    MASKED: keys outside [lo, hi) are not read, and count as zeros; without it every row sees every
    key. PLAIN: the logits are `factor` times the product, and factor is positive.
    What is loaded takes the query's dtype at once: in Triton's interpreter the query is float32,
    for there arithmetic on bfloat16 works on its bit patterns.
    """
    last = begin + (end - begin - 1) // TILE * TILE
    pages = load_pages(TABLE, begin, tl.maximum(last, 0), hi, PAGE, TILE, True)
    for start in range(begin, end, TILE):
        start = tl.multiple_of(start, TILE)
        key = start + tl.arange(0, TILE)
        inside = (key >= lo) & (key < hi)
        if K_DESC is not None:
            row = start % PAGE
            row_k = pages * desc_page_k + desc_row_k + row
            row_v = pages * desc_page_v + desc_row_v + row
            k = K_DESC.load([row_k, desc_column_k])
            v = V_DESC.load([row_v, desc_column_v])
            if D_HIGH > 0:
                k_high = K_DESC_HIGH.load([row_k, desc_column_k + D_LOW])
            if V_HIGH > 0:
                v_high = V_DESC_HIGH.load([row_v, desc_column_v + V_LOW])
        else:
            k = load_keys(
                K, stride_kn, stride_kp, stride_kd, pages, start, inside,
                0, D_LOW, D, PAGE, TILE, MASKED,
            )  # fmt: skip
            v = load_keys(
                V, stride_vn, stride_vp, stride_vd, pages, start, inside,
                0, V_LOW, DV, PAGE, TILE, MASKED,
            )  # fmt: skip
            if D_HIGH > 0:
                k_high = load_keys(
                    K, stride_kn, stride_kp, stride_kd, pages, start, inside,
                    D_LOW, D_HIGH, D, PAGE, TILE, MASKED,
                )  # fmt: skip
            if V_HIGH > 0:
                v_high = load_keys(
                    V, stride_vn, stride_vp, stride_vd, pages, start, inside,
                    V_LOW, V_HIGH, DV, PAGE, TILE, MASKED,
                )  # fmt: skip
            if K_SCALES is not None:
                rows = (key % PAGE).to(tl.int64)
                at_k = pages.to(tl.int64) * stride_ksn + rows * stride_ksp
                at_v = pages.to(tl.int64) * stride_vsn + rows * stride_vsp
                k_scale = tl.load(K_SCALES + at_k, mask=inside, other=0.0)
                v_scale = tl.load(V_SCALES + at_v, mask=inside, other=0.0)
        # one tile ahead, or the wait for the page id would stand before every tile's loads
        pages = load_pages(TABLE, start + TILE, last, hi, PAGE, TILE, MASKED)

        k = widen(k, q)
        v = widen(v, q)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if D_HIGH > 0:
            k_high = widen(k_high, q)
            s = tl.dot(q_high, tl.trans(k_high), acc=s, input_precision=PRECISION)
        if V_HIGH > 0:
            v_high = widen(v_high, q)
        if K_SCALES is not None:
            s = s * k_scale[None, :]
        if not PLAIN:
            s = s * factor
            if cap is not None:
                # tanh by exp2, exact at both ends: 1 - 2 / (inf + 1) and 1 - 2 / (0 + 1)
                s = cap * (1.0 - 2.0 / (tl.exp2(s * 2.8853900817779268) + 1.0))
            if slope is not None:
                s = s + slope[:, None] * (key[None, :] - position[:, None]).to(tl.float32)
        if MASKED:
            seen = visible(
                position,
                key,
                lo,
                hi,
                window,
                window_right,
                chunk,
                RANGES,
                ranges,
                CAUSAL,
            )
            s = tl.where(seen, s, float("-inf"))
            if RANGES is not None:
                # a hole between a window and a range lies within [lo, hi) and is seen by no row
                used = tl.max(seen.to(tl.int32), 0) > 0
                v = tl.where(used[:, None], v, 0.0)
                if V_HIGH > 0:
                    v_high = tl.where(used[:, None], v_high, 0.0)

        if PLAIN:
            new_top = tl.maximum(top, tl.max(s, 1) * factor)
        else:
            new_top = tl.maximum(top, tl.max(s, 1))
        if MASKED:
            # a row that has seen nothing yet: -inf - -inf would be NaN
            shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        else:
            shift = new_top
        if PLAIN:
            p = tl.exp2(s * factor - shift[:, None])
        else:
            p = tl.exp2(s - shift[:, None])
        fade = tl.exp2(top - shift)
        total = total * fade + tl.sum(p, 1)
        top = new_top
        if K_SCALES is not None:
            p = p * v_scale[None, :]
        p = p.to(q.dtype)
        acc = tl.dot(p, v, acc=acc * fade[:, None], input_precision=PRECISION)
        if V_HIGH > 0:
            acc_high = acc_high * fade[:, None]
            acc_high = tl.dot(p, v_high, acc=acc_high, input_precision=PRECISION)
    return acc, acc_high, top, total


@triton.jit
def load_query(
    Q,
    rows,
    stride,
    real,
    D: tl.constexpr,
    D_LOW: tl.constexpr,
    D_HIGH: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """The low and the high part of a tile's query rows; 0 in rows that do not exist."""
    q = load_part(Q, rows, stride, real, 0, D_LOW, D, True)
    # without a high part any value serves: nothing reads it
    q_high = q
    if D_HIGH > 0:
        q_high = load_part(Q, rows, stride, real, D_LOW, D_HIGH, D, True)
    if INTERPRET:
        q = q.to(tl.float32)
        q_high = q_high.to(tl.float32)
    return q, q_high


@triton.jit
def store_part(
    base, rows, stride, keep, value, OFFSET: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    """Writes [rows, BLOCK] to columns OFFSET.. of a matrix WIDTH wide."""
    column = OFFSET + tl.arange(0, BLOCK)
    pointers = base + rows[:, None] + column[None, :] * stride
    tl.store(
        pointers,
        value.to(base.dtype.element_ty),
        mask=keep[:, None] & (column < WIDTH)[None, :],
    )
