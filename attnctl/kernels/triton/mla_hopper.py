"""Latent attention for Hopper's matrix unit: three groups of warps that hand tiles to each other.

A program holds 64 heads of one query token, and their 64 x 512 running sums fill half of a
multiprocessor's registers, so that no second program could run beside it while this one computes
its softmax. Instead one group of warps copies rows, one makes logits and weights, and two add the
weighted rows, all at once. Written in Gluon, Triton's explicit layer, which the interpreter does
not run: the portable kernels say what it must give.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Triton 3.7 renamed the one, 3.9 the other
sync_warps = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
copy_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
copy_box = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared

TILE = gl.constexpr(64)
"""Rows of a program and keys of a tile. Tiles of 32 keys in four buffers were slower."""

BUFFERS = gl.constexpr(2)
"""Tiles in shared memory beside the query: as many as fit."""


@gluon.jit
def rows_of(
    ROWS,
    start,
    end,
    limit,
    PAGE: gl.constexpr,
    SPARSE: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """Page and row in it of each key of a tile, and whether it is seen. ROWS: slots or pages."""
    key = start + gl.arange(0, TILE, layout=LAYOUT)
    if SPARSE:
        slot = gl.load(ROWS + key, mask=key < end, other=-1)
        seen = (slot >= 0) & (slot < limit)
        slot = gl.where(seen, slot, 0)
        page = slot // PAGE
        row = slot % PAGE
    else:
        seen = key < end
        page = gl.load(ROWS + key // PAGE, mask=seen, other=0)
        row = key % PAGE
    return page, row, seen


@gluon.jit
def rows_of_query(tokens, heads, HEADS_BLOCK: gl.constexpr, LAYOUT: gl.constexpr):
    """Query token and head of each row, both from the tile's first, and whether it exists."""
    row = gl.arange(0, TILE, layout=LAYOUT)
    token = row // HEADS_BLOCK
    head = row % HEADS_BLOCK
    return token, head, (token < tokens) & (head < heads)


@gluon.jit
def copy_rows(latent, rope, pointers, seen, LAYOUT: gl.constexpr):
    """Starts the copy of rows to shared memory, zeros where a row is not seen."""
    by_column: gl.constexpr = gl.SliceLayout(0, LAYOUT)
    L: gl.constexpr = latent.shape[1]
    column = gl.arange(0, L, layout=by_column)
    copy_async(latent, pointers[:, None] + column[None, :], mask=seen[:, None])
    column = L + gl.arange(0, rope.shape[1], layout=by_column)
    copy_async(rope, pointers[:, None] + column[None, :], mask=seen[:, None])


@gluon.jit
def copy_tile(
    latent,
    rope,
    full,
    LATENT_BOX,
    ROPE_BOX,
    CACHE,
    whole_page,
    page,
    row,
    seen,
    start,
    end,
    stride_n,
    stride_p,
    PAGE: gl.constexpr,
    UNPACK: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """Starts the copy of a tile; `full` completes when it is there.

    By boxes where a page holds whole tiles; the last rows of a sequence by pointers even then, for
    what lies behind them may hold anything.
    """
    if LATENT_BOX is not None:
        if start + TILE <= end:
            first = whole_page * PAGE + start % PAGE
            mbarrier.expect(full, TILE * (latent.shape[1] + rope.shape[1]) * 2)
            copy_box(LATENT_BOX, [first, 0], full, latent)
            copy_box(ROPE_BOX, [first, latent.shape[1]], full, rope)
        else:
            pointers = CACHE + page.to(gl.int64) * stride_n + row * stride_p
            copy_rows(latent, rope, pointers, seen, LAYOUT)
            # every thread's copies first count themselves in, then the one arrival stands alone
            async_copy.mbarrier_arrive(full)
            sync_warps()
            mbarrier.arrive(full)
    else:
        pointers = CACHE + page.to(gl.int64) * stride_n + row * stride_p
        if UNPACK:
            # the rope part alone: the rest comes through registers
            column = gl.arange(0, rope.shape[1], layout=gl.SliceLayout(0, LAYOUT))
            copy_async(rope, pointers[:, None] + column[None, :], mask=seen[:, None])
        else:
            copy_rows(latent, rope, pointers, seen, LAYOUT)
        async_copy.mbarrier_arrive(full, increment_count=False)


@gluon.jit
def fetch_group(BYTES, SCALES, page, row, seen, stride_n, stride_p, LAYOUT: gl.constexpr, GROUP):
    """Bytes [TILE, 128] of packed rows and the scale that each row multiplies them with."""
    at = page.to(gl.int64) * stride_n + row * stride_p
    column = GROUP * 128 + gl.arange(0, 128, layout=gl.SliceLayout(0, LAYOUT))
    pointers = BYTES + at[:, None] + column[None, :]
    values = gl.load(pointers, mask=seen[:, None], other=0)
    # the scales are 4 bytes wide
    return values, gl.load(SCALES + at // 4 + GROUP, mask=seen, other=0.0)


@gluon.jit
def unpack_group(latent, values, scale, GROUP: gl.constexpr):
    """Stores a group's columns in the dtype that is multiplied."""
    wide = values.to(gl.float8e4nv, bitcast=True).to(gl.float16).to(gl.float32)
    part = latent.slice(GROUP * 128, 128, dim=1)
    part.store((wide * scale[:, None]).to(latent.dtype))


@gluon.jit
def weigh_rows(
    q_latent,
    q_rope,
    q_full,
    latents,
    ropes,
    full,
    fades,
    weighed,
    empty,
    BYTES,
    SCALES,
    ROWS,
    LSE,
    begin,
    end,
    limit,
    visible,
    stride_n,
    stride_p,
    stride_st,
    stride_sh,
    tokens,
    heads,
    factor,
    v_scale,
    unit,
    HEADS_BLOCK: gl.constexpr,
    PAGE: gl.constexpr,
    SPARSE: gl.constexpr,
    UNPACK: gl.constexpr,
    WRITE_LSE: gl.constexpr,
):
    """The group that makes logits and weights, and hands on the weights and the sums' fading."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, TILE, 16]
    )
    by_row: gl.constexpr = gl.SliceLayout(1, layout)
    by_key: gl.constexpr = gl.SliceLayout(0, layout)
    dtype: gl.constexpr = ropes.dtype
    top = gl.full([64], float("-inf"), gl.float32, layout=by_row)
    total = gl.full([64], 0.0, gl.float32, layout=by_row)
    token, head, real = rows_of_query(tokens, heads, HEADS_BLOCK, by_row)
    if UNPACK:
        loaded: gl.constexpr = gl.BlockedLayout([1, 16], [4, 8], [4, 1], [1, 0])
        by_loaded: gl.constexpr = gl.SliceLayout(1, loaded)
        at = rows_of(ROWS, begin, end, limit, PAGE, SPARSE, by_loaded)
        for group in gl.static_range(4):
            v0, s0 = fetch_group(BYTES, SCALES, *at, stride_n, stride_p, loaded, group)
            unpack_group(latents.index(0), v0, s0, group)
    mbarrier.wait(q_full, 0)
    for tile in range(gl.cdiv(end - begin, TILE)):
        start = begin + tile * TILE
        place = tile % BUFFERS
        _, _, seen = rows_of(ROWS, start, end, limit, PAGE, SPARSE, by_key)
        s = gl.full([TILE, TILE], 0.0, gl.float32, layout=layout)
        mbarrier.wait(full.index(place), tile // BUFFERS & 1)
        # copies by pointers were no writes of the proxy through which the matrix unit reads
        fence_async_shared()
        if UNPACK:
            sync_warps()
        s = warpgroup_mma(q_rope, ropes.index(place).permute((1, 0)), s, is_async=True)
        s = warpgroup_mma(q_latent, latents.index(place).permute((1, 0)), s, is_async=True)
        if UNPACK:
            # the next tile's bytes are on their way while this one is weighed
            at = rows_of(ROWS, start + TILE, end, limit, PAGE, SPARSE, by_loaded)
            v0, s0 = fetch_group(BYTES, SCALES, *at, stride_n, stride_p, loaded, 0)
            v1, s1 = fetch_group(BYTES, SCALES, *at, stride_n, stride_p, loaded, 1)
            v2, s2 = fetch_group(BYTES, SCALES, *at, stride_n, stride_p, loaded, 2)
            v3, s3 = fetch_group(BYTES, SCALES, *at, stride_n, stride_p, loaded, 3)
        s = warpgroup_mma_wait(0, deps=[s])
        # every warp is done with the rope part, which the weights overwrite
        sync_warps()
        if HEADS_BLOCK < 64:
            key = start + gl.arange(0, TILE, layout=by_key)
            seen = seen[None, :] & (key[None, :] < (visible + token)[:, None])
        else:
            seen = seen[None, :]
        s = gl.where(seen, s * factor, float("-inf"))
        new_top = gl.maximum(top, gl.max(s, 1))
        # a row that has seen nothing yet: -inf - -inf would be NaN
        shift = gl.where(new_top == float("-inf"), 0.0, new_top)
        p = gl.exp2(s - shift[:, None])
        fade = gl.exp2(top - shift)
        total = total * fade + gl.sum(p, 1)
        top = new_top
        # the rope part of these rows is done with, and as large as their weights
        ropes.index(place).store(p.to(dtype))
        fades.index(place).store(fade)
        fence_async_shared()
        sync_warps()
        mbarrier.arrive(weighed.index(place))
        if UNPACK:
            other = 1 - place
            mbarrier.wait(empty.index(other), ((tile + 1) // BUFFERS & 1) ^ 1)
            unpack_group(latents.index(other), v0, s0, 0)
            unpack_group(latents.index(other), v1, s1, 1)
            unpack_group(latents.index(other), v2, s2, 2)
            unpack_group(latents.index(other), v3, s3, 3)
    # the last hand-over: what the sums are divided by
    safe = gl.where(total > 0.0, total, 1.0)
    fades.index(BUFFERS).store(gl.where(total > 0.0, v_scale / safe, 0.0))
    sync_warps()
    mbarrier.arrive(weighed.index(BUFFERS))
    if WRITE_LSE:
        lse = gl.where(total > 0.0, (top + gl.log2(safe)) * unit, float("-inf"))
        at = token.to(gl.int64) * stride_st + head.to(gl.int64) * stride_sh
        gl.store(LSE + at, lse, mask=real)


@gluon.jit
def add_rows(
    q_latent,
    q_rope,
    q_full,
    latents,
    ropes,
    full,
    fades,
    weighed,
    empty,
    LATENT_BOX,
    ROPE_BOX,
    Q,
    CACHE,
    ROWS,
    OUT,
    begin,
    end,
    limit,
    stride_qt,
    stride_qh,
    stride_n,
    stride_p,
    stride_ot,
    stride_oh,
    tokens,
    heads,
    HEADS_BLOCK: gl.constexpr,
    PAGE: gl.constexpr,
    SPARSE: gl.constexpr,
    UNPACK: gl.constexpr,
    L: gl.constexpr,
):
    """The groups that copy rows and, when those are weighed, add them, each half of the columns."""
    # 8 lanes copy 128 bytes of a row: few rows a thread, whose addresses stay in registers
    copied: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    by_key: gl.constexpr = gl.SliceLayout(1, copied)
    token, head, real = rows_of_query(tokens, heads, HEADS_BLOCK, by_key)
    asked = Q + token.to(gl.int64) * stride_qt + head.to(gl.int64) * stride_qh
    copy_rows(q_latent, q_rope, asked, real, copied)
    async_copy.mbarrier_arrive(q_full, increment_count=False)
    for i in gl.static_range(BUFFERS):
        start = begin + i * TILE
        if start < end:
            page, row, seen = rows_of(ROWS, start, end, limit, PAGE, SPARSE, by_key)
            whole_page = gl.load(ROWS + start // PAGE)
            copy_tile(
                latents.index(i), ropes.index(i), full.index(i), LATENT_BOX, ROPE_BOX, CACHE,
                whole_page, page, row, seen, start, end, stride_n, stride_p, PAGE, UNPACK, copied,
            )  # fmt: skip
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 2], instr_shape=[16, L // 2, 16]
    )
    by_row: gl.constexpr = gl.SliceLayout(1, layout)
    acc = gl.full([64, L], 0.0, gl.float32, layout=layout)
    for tile in range(gl.cdiv(end - begin, TILE)):
        start = begin + tile * TILE
        place = tile % BUFFERS
        # where the tile's successor lies, before the wait hides what that takes
        after = start + BUFFERS * TILE
        page, row, seen = rows_of(ROWS, after, end, limit, PAGE, SPARSE, by_key)
        whole_page = gl.load(ROWS + after // PAGE, mask=after < end, other=0)
        mbarrier.wait(weighed.index(place), tile // BUFFERS & 1)
        acc = acc * fades.index(place).load(by_row)[:, None]
        acc = warpgroup_mma(ropes.index(place), latents.index(place), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        # both groups are done with the rows
        sync_warps()
        if UNPACK:
            mbarrier.arrive(empty.index(place))
        if after < end:
            copy_tile(
                latents.index(place), ropes.index(place), full.index(place), LATENT_BOX, ROPE_BOX,
                CACHE, whole_page, page, row, seen, after, end, stride_n, stride_p, PAGE, UNPACK,
                copied,
            )  # fmt: skip
    mbarrier.wait(weighed.index(BUFFERS), 0)
    value = acc * fades.index(BUFFERS).load(by_row)[:, None]
    token, head, real = rows_of_query(tokens, heads, HEADS_BLOCK, by_row)
    at = token.to(gl.int64) * stride_ot + head.to(gl.int64) * stride_oh
    column = gl.arange(0, L, layout=gl.SliceLayout(0, layout))
    pointers = OUT + at[:, None] + column[None, :]
    gl.store(pointers, value.to(OUT.dtype.element_ty), mask=real[:, None])


@gluon.jit
def mla_hopper_kernel(
    Q,
    CACHE,
    BYTES,
    SCALES,
    ROWS,
    OUT,
    LSE,
    STARTS,
    LENGTHS,
    PART,
    PART_LSE,
    LATENT_BOX,
    ROPE_BOX,
    stride_qt,
    stride_qh,
    stride_n,
    stride_p: gl.constexpr,
    stride_bytes_n,
    stride_bytes_p,
    stride_rows,
    stride_ot,
    stride_oh,
    stride_st,
    stride_sh,
    factor,
    v_scale,
    sequences,
    limit,
    listed,
    least_tiles,
    HEADS: gl.constexpr,
    HEADS_BLOCK: gl.constexpr,
    PAGE: gl.constexpr,
    SPARSE: gl.constexpr,
    SPLIT: gl.constexpr,
    L: gl.constexpr,
    R: gl.constexpr,
):
    """Grid: (T x parts of 64 heads, segments), the parts of a token side by side.

    Dense: ROWS is the block table, the keys are those at or before the query token. SPARSE: ROWS
    holds `listed` slots a token, of which those within 0 .. limit - 1 are seen. HEADS_BLOCK below
    64: a tile holds the heads of several query tokens of a sequence, and the grid starts with
    T / tokens + B, in which sequence b's first tile is starts[b] / tokens + b.
    """
    PARTS: gl.constexpr = (HEADS + 63) // 64
    PACKED: gl.constexpr = 64 // HEADS_BLOCK
    tile = gl.program_id(0) // PARTS
    first = gl.program_id(0) % PARTS * 64
    segment = gl.program_id(1)
    segments = gl.num_programs(1)
    visible = 0
    tokens = 1
    if SPARSE:
        token = tile.to(gl.int64)
        if token >= gl.load(STARTS + sequences):
            return
        hi = listed
        rows = ROWS + token * stride_rows
    else:
        # two ifs: the first decides what is compiled
        if PACKED == 1:  # noqa: SIM102
            if tile >= gl.load(STARTS + sequences):
                return
        low = 0
        high = sequences
        while low < high:
            middle = (low + high) // 2
            mark = gl.load(STARTS + middle)
            if PACKED > 1:
                mark = mark // PACKED + middle
            if mark <= tile:
                low = middle + 1
            else:
                high = middle
        sequence = low - 1
        start = gl.load(STARTS + sequence)
        last = gl.load(STARTS + sequence + 1)
        if PACKED > 1:
            token = start + (tile - start // PACKED - sequence) * PACKED
            if token >= last:
                return
            tokens = gl.minimum(last - token, PACKED)
        else:
            token = tile
        visible = (gl.load(LENGTHS + sequence) - last + token + 1).to(gl.int32)
        hi = visible + tokens - 1
        token = token.to(gl.int64)
        # no table has 2^31 entries
        rows = ROWS + sequence * stride_rows
    tiles = gl.maximum(gl.cdiv(gl.cdiv(hi, TILE), segments), least_tiles)
    begin = segment * tiles * TILE
    end = gl.minimum(begin + tiles * TILE, hi)

    dtype: gl.constexpr = Q.dtype.element_ty
    wide: gl.constexpr = gl.NVMMASharedLayout.get_default_for([TILE, L], dtype)
    narrow: gl.constexpr = gl.NVMMASharedLayout.get_default_for([TILE, R], dtype)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    q_latent = gl.allocate_shared_memory(dtype, [64, L], wide)
    q_rope = gl.allocate_shared_memory(dtype, [64, R], narrow)
    latents = gl.allocate_shared_memory(dtype, [BUFFERS, TILE, L], wide)
    ropes = gl.allocate_shared_memory(dtype, [BUFFERS, TILE, R], narrow)
    fades = gl.allocate_shared_memory(gl.float32, [BUFFERS + 1, 64], plain)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    weighed = gl.allocate_shared_memory(gl.int64, [BUFFERS + 1, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    # every thread that copies arrives when its copies are done; boxes have one to wait for them
    mbarrier.init(q_full, count=256)
    for i in gl.static_range(BUFFERS):
        mbarrier.init(full.index(i), count=256 if LATENT_BOX is None else 1)
        mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(BUFFERS + 1):
        mbarrier.init(weighed.index(i), count=1)

    heads = HEADS - first
    # Triton 3.6 takes no None into a group: what is not there is not read
    packed = STARTS if BYTES is None else BYTES
    scales = STARTS if BYTES is None else SCALES
    query = Q + token * stride_qt + first * stride_qh
    if SPLIT:
        at = (token * HEADS + first) * segments + segment
        out = PART + at * L
        lse = PART_LSE + at
        stride_ot = HEADS * segments * L
        stride_oh = segments * L
        stride_st = HEADS * segments
        stride_sh = segments
        unit = 1.0
    else:
        out = OUT + token * stride_ot + first * stride_oh
        unit = 0.6931471805599453
        lse = STARTS if LSE is None else LSE + token * stride_st + first * stride_sh
    gl.warp_specialize(
        [
            (
                add_rows,
                (
                    q_latent, q_rope, q_full, latents, ropes, full, fades, weighed,
                    empty, LATENT_BOX, ROPE_BOX, query, CACHE, rows, out, begin, end, limit,
                    stride_qt, stride_qh, stride_n, stride_p, stride_ot, stride_oh, tokens, heads,
                    HEADS_BLOCK, PAGE, SPARSE, BYTES is not None, L,
                ),
            ),
            (
                weigh_rows,
                (
                    q_latent, q_rope, q_full, latents, ropes, full, fades, weighed, empty,
                    packed, scales, rows, lse, begin, end, limit, visible, stride_bytes_n,
                    stride_bytes_p, stride_st, stride_sh, tokens, heads,
                    factor, v_scale, unit, HEADS_BLOCK, PAGE, SPARSE, BYTES is not None,
                    SPLIT or LSE is not None,
                ),
            ),
        ],
        [4],
        [168],
    )  # fmt: skip
