"""The groups of warps of Hopper's prefill kernel that attend: 64 query rows of every unit each."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from attnctl.kernels.triton.latent.hopper import sync_warps
from attnctl.kernels.triton.paged.prefill_units import place_of, read_unit, tiles_of


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
