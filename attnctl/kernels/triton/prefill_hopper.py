"""Prefill on Hopper: groups of warps with 64 query rows each, and a warp that copies for them.

While one group computes its softmax the other has the matrix unit, be it of the same program or of
another one beside it (prefill_forms), and each group multiplies the next keys before it waits for
the last weights' product. Rows arrive as boxes, keys from the last to the first, so that only the
first tiles need a mask. As many programs as the device runs at once go through all units: what a
unit reads is on its way while the one before it is finished. Written in Gluon, as mla_hopper is.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from attnctl.kernels.triton.mla_hopper import sync_warps
from attnctl.kernels.triton.prefill_copy import copy_units
from attnctl.kernels.triton.prefill_units import place_of, read_unit, tiles_of


@gluon.jit
def multiply_keys(q_low, q_high, k_low, k_high, none, D_HIGH: gl.constexpr):
    """Starts the product of a group's queries with a tile of keys: logits."""
    s = warpgroup_mma(q_low, k_low.permute((1, 0)), none, use_acc=False, is_async=True)
    if D_HIGH > 0:
        s = warpgroup_mma(q_high, k_high.permute((1, 0)), s, is_async=True)
    return s


@gluon.jit
def hide(s, tile, row, length, position, CAUSAL: gl.constexpr, LAYOUT: gl.constexpr):
    """A tile's logits, -inf where a row does not see a key."""
    KEYS: gl.constexpr = s.shape[1]
    key = tile * KEYS + gl.arange(0, KEYS, layout=gl.SliceLayout(0, LAYOUT))
    last = gl.zeros_like(row) + (length - 1)
    if CAUSAL:
        last = gl.minimum(last, position + row)
    return gl.where(key[None, :] <= last[:, None], s, float("-inf"))


@gluon.jit
def weigh(s, top, total, factor):
    """Weights of a tile's logits, the new top, the sums' fading and total. factor: positive."""
    new_top = gl.maximum(top, gl.max(s, 1) * factor)
    # a row that has seen nothing yet: -inf - -inf would be NaN
    shift = gl.where(new_top == float("-inf"), 0.0, new_top)
    p = gl.exp2(s * factor - shift[:, None])
    fade = gl.exp2(top - shift)
    return p, new_top, fade, total * fade + gl.sum(p, 1)


@gluon.jit
def clear_behind(values, rows):
    """Zeros behind a tile's first rows: what lies there may hold anything, and 0 x NaN is NaN.

    Every group does so, and they write the same.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    for i in gl.static_range(values.shape[0] // 32):
        if (i + 1) * 32 > rows:
            part = values.slice(i * 32, 32, dim=0)
            row = i * 32 + gl.arange(0, 32, layout=gl.SliceLayout(1, layout))
            found = part.load(layout)
            part.store(gl.where((row < rows)[:, None], found, gl.zeros_like(found)))
    fence_async_shared()
    sync_warps()


@gluon.jit
def store_rows(OUT, value, stride_ot, real, GROUP: gl.constexpr):
    """Stores a group's rows, in pieces of 16 bytes a lane and 64 bytes a row."""
    wide: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 2], [0, 4], [8, 0], [0, 32], [0, 64]],
        lane_bases=[[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, 128],
    )
    value = gl.convert_layout(value, wide)
    row = GROUP * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, wide))
    column = gl.arange(0, value.shape[1], layout=gl.SliceLayout(0, wide))
    pointers = OUT + (row.to(gl.int64) * stride_ot)[:, None] + column[None, :]
    gl.store(pointers, value, mask=(row < real)[:, None])


@gluon.jit
def attend_rows(
    places,
    barriers,
    tensors,
    strides,
    factor,
    v_scale,
    cut,
    GROUP: gl.constexpr,
    GROUPS: gl.constexpr,
    D_HIGH: gl.constexpr,
    CAUSAL: gl.constexpr,
    PAGE: gl.constexpr,
):
    """A group's 64 rows of every unit."""
    q_lows, q_highs, k_lows, k_highs, values = places
    q_full, k_full, v_full, q_empty, k_empty, v_empty, units, announced = barriers
    OUT, LSE, STARTS, KEY_STARTS = tensors
    stride_ot, stride_oh, stride_st, stride_sh = strides
    sequences, tiles_a_head, tiles_a_sequence, together, total = cut
    KEYS: gl.constexpr = values.shape[1]
    DEPTH: gl.constexpr = values.shape[0]
    PLACES: gl.constexpr = units.shape[0]
    QUERIES: gl.constexpr = PLACES - 1
    ROWS: gl.constexpr = GROUPS * 64
    # a tile of 128 keys is wanted by all rows of a unit; of smaller ones a group skips what none
    # of its rows sees
    SKIPS: gl.constexpr = GROUPS > 1 and KEYS < 128
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, KEYS, 16]
    )
    out_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16]
    )
    by_row: gl.constexpr = gl.SliceLayout(1, layout)
    out_row: gl.constexpr = gl.SliceLayout(1, out_layout)
    operand: gl.constexpr = gl.DotOperandLayout(0, out_layout, 2)
    dtype: gl.constexpr = values.dtype
    row = GROUP * 64 + gl.arange(0, 64, layout=by_row)
    none = gl.full([64, KEYS], 0.0, gl.float32, layout=layout)
    copied = 0
    done = 0
    unit = read_unit(units, announced, done, PLACES)
    head, begin, first, queries, _key_first, length = place_of(
        unit, total, STARTS, KEY_STARTS, sequences, tiles_a_head, tiles_a_sequence, together,
        ROWS, PAGE,
    )  # fmt: skip
    while unit < total:
        count, whole, position = tiles_of(begin, queries, length, ROWS, KEYS, CAUSAL)
        if SKIPS:
            own, whole, _position = tiles_of(begin + GROUP * 64, queries, length, 64, KEYS, CAUSAL)
            if begin + GROUP * 64 >= queries:
                # no row: the least that keeps in step
                own = own * 0 + 1
            while count > own:
                place = copied % DEPTH
                mbarrier.wait(k_full.index(place), copied // DEPTH & 1)
                mbarrier.wait(v_full.index(place), copied // DEPTH & 1)
                sync_warps()
                mbarrier.arrive(k_empty.index(place))
                mbarrier.arrive(v_empty.index(place))
                copied += 1
                count -= 1
        asked = done % QUERIES * GROUPS + GROUP
        q_low = q_lows.index(asked)
        q_high = q_highs.index(asked)
        acc = gl.full([64, values.shape[2]], 0.0, gl.float32, layout=out_layout)
        top = gl.full([64], float("-inf"), gl.float32, layout=by_row)
        sums = gl.full([64], 0.0, gl.float32, layout=by_row)
        place = copied % DEPTH
        mbarrier.wait(k_full.index(place), copied // DEPTH & 1)
        mbarrier.wait(q_full.index(asked), done // QUERIES & 1)
        s = multiply_keys(q_low, q_high, k_lows.index(place), k_highs.index(place), none, D_HIGH)
        s = warpgroup_mma_wait(0, deps=[s])
        sync_warps()
        mbarrier.arrive(k_empty.index(place))
        mbarrier.arrive(q_empty.index(asked), pred=count == 1)
        if count > whole:
            s = hide(s, count - 1, row, length, position, CAUSAL, layout)
        p, top, fade, sums = weigh(s, top, sums, factor)
        weights = gl.convert_layout(p.to(dtype), operand)
        if length < count * KEYS:
            mbarrier.wait(v_full.index(place), copied // DEPTH & 1)
            clear_behind(values.index(place), length - (count - 1) * KEYS)

        for step in range(1, count):
            n = copied + step
            place = n % DEPTH
            before = (n - 1) % DEPTH
            tile = count - 1 - step
            mbarrier.wait(k_full.index(place), n // DEPTH & 1)
            logits = multiply_keys(
                q_low, q_high, k_lows.index(place), k_highs.index(place), none, D_HIGH
            )
            mbarrier.wait(v_full.index(before), (n - 1) // DEPTH & 1)
            added = warpgroup_mma(weights, values.index(before), acc, is_async=True)
            s = warpgroup_mma_wait(1, deps=[logits])
            sync_warps()
            mbarrier.arrive(k_empty.index(place))
            mbarrier.arrive(q_empty.index(asked), pred=tile == 0)
            if tile >= whole:
                s = hide(s, tile, row, length, position, CAUSAL, layout)
            p, top, fade, sums = weigh(s, top, sums, factor)
            acc, _ = warpgroup_mma_wait(0, deps=[added, weights])
            sync_warps()
            mbarrier.arrive(v_empty.index(before))
            acc = acc * gl.convert_layout(fade, out_row)[:, None]
            weights = gl.convert_layout(p.to(dtype), operand)

        copied += count
        done += 1
        before = (copied - 1) % DEPTH
        mbarrier.wait(v_full.index(before), (copied - 1) // DEPTH & 1)
        added = warpgroup_mma(weights, values.index(before), acc, is_async=True)
        token = (first + begin).to(gl.int64)
        out = OUT + token * stride_ot + head * stride_oh
        real = queries - begin
        safe = gl.where(sums > 0.0, sums, 1.0)
        if PAGE == 0:
            lse = gl.where(sums > 0.0, (top + gl.log2(safe)) * 0.6931471805599453, float("-inf"))
            at = token * stride_st + head * stride_sh + row.to(gl.int64) * stride_st
            gl.store(LSE + at, lse, mask=row < real)
        # where the next unit lies, while the last product is under way
        unit = read_unit(units, announced, done, PLACES)
        head, begin, first, queries, _key_first, length = place_of(
            unit, total, STARTS, KEY_STARTS, sequences, tiles_a_head, tiles_a_sequence, together,
            ROWS, PAGE,
        )  # fmt: skip
        acc, _ = warpgroup_mma_wait(0, deps=[added, weights])
        sync_warps()
        mbarrier.arrive(v_empty.index(before))
        value = acc * gl.convert_layout(v_scale / safe, out_row)[:, None]
        store_rows(out, value.to(OUT.dtype.element_ty), stride_ot, real, GROUP)


# one binary for every batch and every cache
@gluon.jit(
    do_not_specialize=[
        "stride_st", "stride_sh", "row_kh", "row_vh", "page_k", "page_v", "stride_table",
        "sequences", "tiles_a_head", "tiles_a_sequence", "together", "total",
        "counted",
    ]
)  # fmt: skip
def prefill_hopper_kernel(
    Q_LOW,
    Q_HIGH,
    K_LOW,
    K_HIGH,
    V_BOX,
    OUT,
    LSE,
    STARTS,
    KEY_STARTS,
    TABLE,
    COUNTS,
    stride_qh,
    column_kh,
    column_vh,
    row_kh,
    row_vh,
    page_k,
    page_v,
    stride_table,
    stride_ot,
    stride_oh,
    stride_st,
    stride_sh,
    factor,
    v_scale,
    sequences,
    tiles_a_head,
    tiles_a_sequence,
    together,
    total,
    counted,
    GROUPS: gl.constexpr,
    KEYS: gl.constexpr,
    DEPTH: gl.constexpr,
    QUERIES: gl.constexpr,
    D_LOW: gl.constexpr,
    D_HIGH: gl.constexpr,
    DV: gl.constexpr,
    CAUSAL: gl.constexpr,
    PAGE: gl.constexpr,
    RATIO: gl.constexpr,
):
    """Grid: (programs,). Writes OUT [T, H, DV] and, without pages, LSE [T, H].

    PAGE 0: keys and values are packed rows, sequence b's from KEY_STARTS[b] on. Otherwise they lie
    in pages, TABLE names a sequence's and KEY_STARTS holds lengths. RATIO: heads that share keys.
    """
    dtype: gl.constexpr = OUT.dtype.element_ty
    HIGH: gl.constexpr = D_HIGH if D_HIGH > 0 else 64
    # without a high part a few rows stand for it, which are not read
    q_rows: gl.constexpr = 64 if D_HIGH > 0 else 8
    k_rows: gl.constexpr = KEYS if D_HIGH > 0 else 8
    low_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, D_LOW], dtype)
    high_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, HIGH], dtype)
    value_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, DV], dtype)
    ASKED: gl.constexpr = QUERIES * GROUPS
    q_lows = gl.allocate_shared_memory(dtype, [ASKED, 64, D_LOW], low_layout)
    q_highs = gl.allocate_shared_memory(dtype, [ASKED, q_rows, HIGH], high_layout)
    k_lows = gl.allocate_shared_memory(dtype, [DEPTH, KEYS, D_LOW], low_layout)
    k_highs = gl.allocate_shared_memory(dtype, [DEPTH, k_rows, HIGH], high_layout)
    values = gl.allocate_shared_memory(dtype, [DEPTH, KEYS, DV], value_layout)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    # with the queries of a unit ahead its number is ahead of them
    units = gl.allocate_shared_memory(gl.int32, [QUERIES + 1, 1], plain)
    announced = gl.allocate_shared_memory(gl.int64, [QUERIES + 1, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [ASKED, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [ASKED, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(QUERIES + 1):
        mbarrier.init(announced.index(i), count=1)
    for i in gl.static_range(ASKED):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=1)
    for i in gl.static_range(DEPTH):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(v_full.index(i), count=1)
        # all groups are done with a tile
        mbarrier.init(k_empty.index(i), count=GROUPS)
        mbarrier.init(v_empty.index(i), count=GROUPS)
    fence_async_shared()
    sync_warps()
    places = (q_lows, q_highs, k_lows, k_highs, values)
    barriers = (q_full, k_full, v_full, q_empty, k_empty, v_empty, units, announced)
    tensors = (OUT, LSE, STARTS, KEY_STARTS)
    strides = (stride_ot, stride_oh, stride_st, stride_sh)
    cut = (sequences, tiles_a_head, tiles_a_sequence, together, total)
    boxes = (Q_LOW, Q_HIGH, K_LOW, K_HIGH, V_BOX)
    sources = (STARTS, KEY_STARTS, TABLE, COUNTS)
    steps = (stride_qh, column_kh, column_vh, row_kh, row_vh, page_k, page_v, stride_table)
    if GROUPS == 1:
        gl.warp_specialize(
            [
                (
                    attend_rows,
                    (
                        places, barriers, tensors, strides, factor, v_scale, cut,
                        0, GROUPS, D_HIGH, CAUSAL, PAGE,
                    ),
                ),
                (
                    copy_units,
                    (
                        places, barriers, boxes, sources, steps, cut, counted,
                        GROUPS, D_HIGH, CAUSAL, PAGE, RATIO,
                    ),
                ),
            ],
            [1],
            [40],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (
                    attend_rows,
                    (
                        places, barriers, tensors, strides, factor, v_scale, cut,
                        0, GROUPS, D_HIGH, CAUSAL, PAGE,
                    ),
                ),
                (
                    attend_rows,
                    (
                        places, barriers, tensors, strides, factor, v_scale, cut,
                        1, GROUPS, D_HIGH, CAUSAL, PAGE,
                    ),
                ),
                (
                    copy_units,
                    (
                        places, barriers, boxes, sources, steps, cut, counted,
                        GROUPS, D_HIGH, CAUSAL, PAGE, RATIO,
                    ),
                ),
            ],
            [4, 1],
            [232, 40],
        )  # fmt: skip
