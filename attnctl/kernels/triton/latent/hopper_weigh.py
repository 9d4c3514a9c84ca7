"""The group of warps of the Hopper kernel of latent attention that makes logits and weights."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from attnctl.kernels.triton.latent.hopper_rows import (
    FIRST,
    ROPES,
    TILE,
    rows_of_query,
    slots_of,
    sync_warps,
)


@gluon.jit
def fetch_group(
    BYTES, SCALES, slot, stride_n, stride_p, PAGE: gl.constexpr, LAYOUT: gl.constexpr, GROUP
):
    """Bytes [TILE, 128] of packed rows and the scale that each row multiplies them with."""
    whole = gl.maximum(slot, 0)
    at = (whole // PAGE).to(gl.int64) * stride_n + whole % PAGE * stride_p
    column = GROUP * 128 + gl.arange(0, 128, layout=gl.SliceLayout(0, LAYOUT))
    pointers = BYTES + at[:, None] + column[None, :]
    values = gl.load(pointers, mask=(slot >= 0)[:, None], other=0)
    # the scales are 4 bytes wide
    return values, gl.load(SCALES + at // 4 + GROUP, mask=slot >= 0, other=0.0)


@gluon.jit
def unpack_group(latent, values, scale, GROUP: gl.constexpr):
    """Stores a group's columns in the dtype that is multiplied."""
    wide = values.to(gl.float8e4nv, bitcast=True).to(gl.float16).to(gl.float32)
    part = latent.slice(GROUP * 128, 128, dim=1)
    part.store((wide * scale[:, None]).to(latent.dtype))


@gluon.jit
def multiply_query(q_first, q_second, q_third, q_fourth, latent, s):
    """Starts the products of a query's latent part with that of a tile, [L, TILE]."""
    L: gl.constexpr = latent.shape[0]
    s = warpgroup_mma(q_first, latent.slice(0, FIRST, dim=0), s, is_async=True)
    s = warpgroup_mma(q_second, latent.slice(FIRST, FIRST, dim=0), s, is_async=True)
    if L > 256:
        s = warpgroup_mma(q_third, latent.slice(128, 128, dim=0), s, is_async=True)
    return warpgroup_mma(q_fourth, latent.slice(L // 2, L // 2, dim=0), s, is_async=True)


@gluon.jit
def soften(s, top, total):
    """Weights of a tile's logits, how the sums before it fade, and the new top and total."""
    new_top = gl.maximum(top, gl.max(s, 1))
    # a row that has seen nothing yet: -inf - -inf would be NaN
    shift = gl.where(new_top == float("-inf"), 0.0, new_top)
    p = gl.exp2(s - shift[:, None])
    fade = gl.exp2(top - shift)
    return p, fade, new_top, total * fade + gl.sum(p, 1)


@gluon.jit
def weigh_rows(
    query,
    places,
    barriers,
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
    RESIDENT: gl.constexpr,
    WRITE_LSE: gl.constexpr,
):
    """The group that makes logits and weights, and hands on the weights and the sums' fading."""
    q_latent, q_first, q_rope, q_full = query
    latents, ropes, fades = places
    full, rope_full, weighed, empty, going = barriers
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, TILE, 16]
    )
    by_row: gl.constexpr = gl.SliceLayout(1, layout)
    by_key: gl.constexpr = gl.SliceLayout(0, layout)
    asked: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    dtype: gl.constexpr = ropes.dtype
    L: gl.constexpr = latents.shape[2]
    top = gl.full([64], float("-inf"), gl.float32, layout=by_row)
    total = gl.full([64], 0.0, gl.float32, layout=by_row)
    token, head, real = rows_of_query(tokens, heads, HEADS_BLOCK, by_row)
    if UNPACK:
        loaded: gl.constexpr = gl.BlockedLayout([1, 16], [4, 8], [4, 1], [1, 0])
        by_loaded: gl.constexpr = gl.SliceLayout(1, loaded)
        at = slots_of(ROWS, begin, end, limit, PAGE, SPARSE, by_loaded)
        for group in gl.static_range(4):
            v0, s0 = fetch_group(BYTES, SCALES, at, stride_n, stride_p, PAGE, loaded, group)
            unpack_group(latents.index(0), v0, s0, group)
    mbarrier.wait(q_full, 0)
    if RESIDENT:
        # the query came through the last tile's place
        fence_async_shared()
        q_second = q_latent.slice(FIRST, FIRST, dim=1).load(asked)
        q_third = q_latent.slice(128, 128, dim=1).load(asked)
        q_fourth = q_latent.slice(L // 2, L // 2, dim=1).load(asked)
        sync_warps()
        mbarrier.arrive(empty.index(0))
    for tile in range(gl.cdiv(end - begin, TILE)):
        start = begin + tile * TILE
        place = tile % latents.shape[0]
        hand = tile % ROPES
        s = gl.full([TILE, TILE], 0.0, gl.float32, layout=layout)
        latent = latents.index(place).permute((1, 0))
        if UNPACK:
            # what every thread has unpacked
            fence_async_shared()
            sync_warps()
        else:
            mbarrier.wait(full.index(place), tile // latents.shape[0] & 1)
            # copies by pointers were no writes of the proxy through which the matrix unit reads
            fence_async_shared()
        if RESIDENT:
            s = multiply_query(q_first, q_second, q_third, q_fourth, latent, s)
        else:
            s = warpgroup_mma(q_latent, latent, s, is_async=True)
        mbarrier.wait(rope_full.index(hand), tile // ROPES & 1)
        fence_async_shared()
        s = warpgroup_mma(q_rope, ropes.index(hand).permute((1, 0)), s, is_async=True)
        if RESIDENT:
            # all but the rope part is multiplied: the sums may have the matrix unit
            s = warpgroup_mma_wait(1, deps=[s])
            mbarrier.arrive(going.index(hand))
        if UNPACK:
            # the next tile's bytes are on their way while this one is weighed
            at = slots_of(ROWS, start + TILE, end, limit, PAGE, SPARSE, by_loaded)
            v0, s0 = fetch_group(BYTES, SCALES, at, stride_n, stride_p, PAGE, loaded, 0)
            v1, s1 = fetch_group(BYTES, SCALES, at, stride_n, stride_p, PAGE, loaded, 1)
            v2, s2 = fetch_group(BYTES, SCALES, at, stride_n, stride_p, PAGE, loaded, 2)
            v3, s3 = fetch_group(BYTES, SCALES, at, stride_n, stride_p, PAGE, loaded, 3)
        if SPARSE:
            slot = slots_of(ROWS, start, end, limit, PAGE, SPARSE, by_key)
        s = warpgroup_mma_wait(0, deps=[s])
        # every warp is done with the rope part, which the weights overwrite
        sync_warps()
        s = s * factor
        if SPARSE:
            s = gl.where((slot >= 0)[None, :], s, float("-inf"))
        elif start + TILE > visible:
            # the last tiles alone hold keys that are not seen
            key = start + gl.arange(0, TILE, layout=by_key)
            seen = (key < end)[None, :]
            if HEADS_BLOCK < 64:
                seen = seen & (key[None, :] < (visible + token)[:, None])
            s = gl.where(seen, s, float("-inf"))
        p, fade, top, total = soften(s, top, total)
        # the rope part of these rows is done with, and as large as their weights
        ropes.index(hand).store(p.to(dtype))
        fades.index(hand).store(fade)
        fence_async_shared()
        sync_warps()
        mbarrier.arrive(weighed.index(hand))
        if UNPACK:
            other = 1 - place
            mbarrier.wait(empty.index(other), ((tile + 1) // 2 & 1) ^ 1)
            unpack_group(latents.index(other), v0, s0, 0)
            unpack_group(latents.index(other), v1, s1, 1)
            unpack_group(latents.index(other), v2, s2, 2)
            unpack_group(latents.index(other), v3, s3, 3)
    # the last hand-over: what the sums are divided by
    safe = gl.where(total > 0.0, total, 1.0)
    fades.index(ROPES).store(gl.where(total > 0.0, v_scale / safe, 0.0))
    sync_warps()
    mbarrier.arrive(weighed.index(ROPES))
    if WRITE_LSE:
        lse = gl.where(total > 0.0, (top + gl.log2(safe)) * unit, float("-inf"))
        at = token.to(gl.int64) * stride_st + head.to(gl.int64) * stride_sh
        gl.store(LSE + at, lse, mask=real)
