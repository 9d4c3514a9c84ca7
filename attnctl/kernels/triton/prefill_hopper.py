"""The uncompressed form on Hopper: two groups of warps, 64 query rows each, over the same keys.

While one group computes its softmax the other has the matrix unit, and each group multiplies the
next keys before it waits for the last weights' product. Rows arrive as boxes, keys from the last
to the first, so that only the first tile needs a mask. Written in Gluon, as mla_hopper is.
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

from attnctl.kernels.triton.mla_hopper import copy_box, sync_warps

TILE = gl.constexpr(128)
"""Query rows of a program and keys of a tile."""


@gluon.jit
def copy_keys(K_LOW, K_HIGH, full, low, high, row, column, D_HIGH: gl.constexpr):
    """Starts the copy of a tile of keys."""
    mbarrier.expect(full, TILE * (low.shape[1] + D_HIGH) * 2)
    copy_box(K_LOW, [row, column], full, low)
    if D_HIGH > 0:
        copy_box(K_HIGH, [row, column + low.shape[1]], full, high)


@gluon.jit
def copy_values(V_BOX, full, values, row, column):
    """Starts the copy of a tile of values."""
    mbarrier.expect(full, TILE * values.shape[1] * 2)
    copy_box(V_BOX, [row, column], full, values)


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
def attend_rows(
    q_lows,
    q_highs,
    k_lows,
    k_highs,
    values,
    q_full,
    k_full,
    v_full,
    k_empty,
    v_empty,
    K_LOW,
    K_HIGH,
    V_BOX,
    OUT,
    LSE,
    key_first,
    column_k,
    column_v,
    count,
    whole,
    length,
    position,
    real,
    stride_ot,
    stride_st,
    factor,
    GROUP: gl.constexpr,
    D_HIGH: gl.constexpr,
    CAUSAL: gl.constexpr,
):
    """A group's 64 rows over all tiles; group 0 also starts the copies."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, TILE, 16]
    )
    by_row: gl.constexpr = gl.SliceLayout(1, layout)
    by_key: gl.constexpr = gl.SliceLayout(0, layout)
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    dtype: gl.constexpr = values.dtype
    DV: gl.constexpr = values.shape[2]
    row = GROUP * 64 + gl.arange(0, 64, layout=by_row)
    q_low = q_lows.index(GROUP)
    q_high = q_highs.index(GROUP)
    acc = gl.full([64, DV], 0.0, gl.float32, layout=layout)
    none = gl.full([64, TILE], 0.0, gl.float32, layout=layout)
    top = gl.full([64], float("-inf"), gl.float32, layout=by_row)
    total = gl.full([64], 0.0, gl.float32, layout=by_row)

    mbarrier.wait(q_full.index(GROUP), 0)
    mbarrier.wait(k_full.index(0), 0)
    s = warpgroup_mma(q_low, k_lows.index(0).permute((1, 0)), none, use_acc=False, is_async=True)
    if D_HIGH > 0:
        s = warpgroup_mma(q_high, k_highs.index(0).permute((1, 0)), s, is_async=True)
    s = warpgroup_mma_wait(0, deps=[s])
    sync_warps()
    mbarrier.arrive(k_empty.index(0))
    if count > whole:
        key = (count - 1) * TILE + gl.arange(0, TILE, layout=by_key)
        seen = (key < length)[None, :] & (row >= 0)[:, None]
        if CAUSAL:
            seen = seen & (key[None, :] <= (position + row)[:, None])
        s = gl.where(seen, s, float("-inf"))
    p, top, fade, total = weigh(s, top, total, factor)
    weights = gl.convert_layout(p.to(dtype), operand)
    # two ifs: the first decides what is compiled
    if GROUP == 0:  # noqa: SIM102
        if count > 2:
            mbarrier.wait(k_empty.index(0), 0)
            at = key_first + (count - 3) * TILE
            copy_keys(
                K_LOW, K_HIGH, k_full.index(0), k_lows.index(0), k_highs.index(0), at, column_k,
                D_HIGH,
            )  # fmt: skip

    for step in range(1, count):
        place = step % 2
        before = 1 - place
        tile = count - 1 - step
        mbarrier.wait(k_full.index(place), step // 2 & 1)
        keys = k_lows.index(place).permute((1, 0))
        logits = warpgroup_mma(q_low, keys, none, use_acc=False, is_async=True)
        if D_HIGH > 0:
            keys = k_highs.index(place).permute((1, 0))
            logits = warpgroup_mma(q_high, keys, logits, is_async=True)
        mbarrier.wait(v_full.index(before), (step - 1) // 2 & 1)
        sums = warpgroup_mma(weights, values.index(before), acc, is_async=True)
        s = warpgroup_mma_wait(1, deps=[logits])
        sync_warps()
        mbarrier.arrive(k_empty.index(place))
        if tile >= whole:
            key = tile * TILE + gl.arange(0, TILE, layout=by_key)
            seen = (key < length)[None, :] & (row >= 0)[:, None]
            if CAUSAL:
                seen = seen & (key[None, :] <= (position + row)[:, None])
            s = gl.where(seen, s, float("-inf"))
        p, top, fade, total = weigh(s, top, total, factor)
        acc, _ = warpgroup_mma_wait(0, deps=[sums, weights])
        sync_warps()
        mbarrier.arrive(v_empty.index(before))
        acc = acc * fade[:, None]
        weights = gl.convert_layout(p.to(dtype), operand)
        if GROUP == 0:
            if step + 2 < count:
                mbarrier.wait(k_empty.index(place), step // 2 & 1)
                at = key_first + (tile - 2) * TILE
                copy_keys(
                    K_LOW, K_HIGH, k_full.index(place), k_lows.index(place), k_highs.index(place),
                    at, column_k, D_HIGH,
                )  # fmt: skip
            if step + 1 < count:
                mbarrier.wait(v_empty.index(before), (step - 1) // 2 & 1)
                at = key_first + (tile - 1) * TILE
                copy_values(V_BOX, v_full.index(before), values.index(before), at, column_v)

    last = count - 1
    mbarrier.wait(v_full.index(last % 2), last // 2 & 1)
    sums = warpgroup_mma(weights, values.index(last % 2), acc, is_async=True)
    acc, _ = warpgroup_mma_wait(0, deps=[sums, weights])
    safe = gl.where(total > 0.0, total, 1.0)
    column = gl.arange(0, DV, layout=by_key)
    pointers = OUT + (row.to(gl.int64) * stride_ot)[:, None] + column[None, :]
    keep = row < real
    gl.store(pointers, (acc / safe[:, None]).to(OUT.dtype.element_ty), mask=keep[:, None])
    lse = gl.where(total > 0.0, (top + gl.log2(safe)) * 0.6931471805599453, float("-inf"))
    gl.store(LSE + row.to(gl.int64) * stride_st, lse, mask=keep)


@gluon.jit
def prefill_hopper_kernel(
    Q_LOW,
    Q_HIGH,
    K_LOW,
    K_HIGH,
    V_BOX,
    V,
    OUT,
    LSE,
    STARTS,
    KEY_STARTS,
    stride_qh,
    stride_kh,
    stride_vs,
    stride_vh,
    stride_ot,
    stride_oh,
    stride_st,
    stride_sh,
    factor,
    sequences,
    D_LOW: gl.constexpr,
    D_HIGH: gl.constexpr,
    DV: gl.constexpr,
    CAUSAL: gl.constexpr,
):
    """Grid: (query tiles, H), the longest first. Writes OUT [T, H, DV] and LSE [T, H]."""
    tile = gl.num_programs(0) - 1 - gl.program_id(0)
    head = gl.program_id(1)
    low = 0
    high = sequences
    while low < high:
        middle = (low + high) // 2
        if gl.load(STARTS + middle) // TILE + middle <= tile:
            low = middle + 1
        else:
            high = middle
    sequence = low - 1
    first = gl.load(STARTS + sequence)
    queries = gl.load(STARTS + sequence + 1) - first
    begin = (tile - first // TILE - sequence) * TILE
    if begin >= queries:
        return
    key_first = gl.load(KEY_STARTS + sequence)
    length = gl.load(KEY_STARTS + sequence + 1) - key_first
    position = length - queries + begin
    hi = length
    whole = length // TILE
    if CAUSAL:
        hi = gl.minimum(length, position + TILE)
        whole = gl.minimum(whole, gl.maximum(position + 1, 0) // TILE)
    # a row without keys still needs its zeros: one tile, all of it masked
    count = gl.maximum(gl.cdiv(hi, TILE), 1)
    column_q = head * stride_qh
    column_k = head * stride_kh
    column_v = head * stride_vh

    dtype: gl.constexpr = V.dtype.element_ty
    HIGH: gl.constexpr = D_HIGH if D_HIGH > 0 else 64
    low_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([TILE, D_LOW], dtype)
    high_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([TILE, HIGH], dtype)
    value_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([TILE, DV], dtype)
    q_lows = gl.allocate_shared_memory(dtype, [2, 64, D_LOW], low_layout)
    q_highs = gl.allocate_shared_memory(dtype, [2, 64, HIGH], high_layout)
    k_lows = gl.allocate_shared_memory(dtype, [2, TILE, D_LOW], low_layout)
    k_highs = gl.allocate_shared_memory(dtype, [2, TILE, HIGH], high_layout)
    values = gl.allocate_shared_memory(dtype, [2, TILE, DV], value_layout)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(k_empty.index(i), count=2)
        mbarrier.init(v_empty.index(i), count=2)
    fence_async_shared()
    sync_warps()
    for i in gl.static_range(2):
        at = first + begin + i * 64
        mbarrier.expect(q_full.index(i), 64 * (D_LOW + D_HIGH) * 2)
        copy_box(Q_LOW, [at, column_q], q_full.index(i), q_lows.index(i))
        if D_HIGH > 0:
            copy_box(Q_HIGH, [at, column_q + D_LOW], q_full.index(i), q_highs.index(i))
        if i < count:
            at = key_first + (count - 1 - i) * TILE
            copy_keys(
                K_LOW, K_HIGH, k_full.index(i), k_lows.index(i), k_highs.index(i), at, column_k,
                D_HIGH,
            )  # fmt: skip
    last = (count - 1) * TILE
    if last + TILE <= length:
        copy_values(V_BOX, v_full.index(0), values.index(0), key_first + last, column_v)
    else:
        # what lies behind a sequence's values may hold anything, and 0 x NaN is NaN
        copied: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
        key = last + gl.arange(0, TILE, layout=gl.SliceLayout(1, copied))
        column = gl.arange(0, DV, layout=gl.SliceLayout(0, copied))
        rows = (key_first + key).to(gl.int64) * stride_vs + column_v
        inside = (key < length)[:, None]
        value = gl.load(V + rows[:, None] + column[None, :], mask=inside, other=0.0)
        values.index(0).store(value)
        fence_async_shared()
        sync_warps()
        mbarrier.arrive(v_full.index(0))
    if count > 1:
        at = key_first + last - TILE
        copy_values(V_BOX, v_full.index(1), values.index(1), at, column_v)

    token = (first + begin).to(gl.int64)
    out = OUT + token * stride_ot + head * stride_oh
    lse = LSE + token * stride_st + head * stride_sh
    real = queries - begin
    gl.warp_specialize(
        [
            (
                attend_rows,
                (
                    q_lows, q_highs, k_lows, k_highs, values, q_full, k_full, v_full, k_empty,
                    v_empty, K_LOW, K_HIGH, V_BOX, out, lse, key_first, column_k, column_v, count,
                    whole, length, position, real, stride_ot, stride_st, factor, 0, D_HIGH, CAUSAL,
                ),
            ),
            (
                attend_rows,
                (
                    q_lows, q_highs, k_lows, k_highs, values, q_full, k_full, v_full, k_empty,
                    v_empty, K_LOW, K_HIGH, V_BOX, out, lse, key_first, column_k, column_v, count,
                    whole, length, position, real, stride_ot, stride_st, factor, 1, D_HIGH, CAUSAL,
                ),
            ),
        ],
        [4],
        [256],
    )  # fmt: skip
