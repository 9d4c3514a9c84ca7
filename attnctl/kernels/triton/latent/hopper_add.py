"""The groups of warps of the Hopper kernel of latent attention that copy rows and add them."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from attnctl.kernels.triton.latent.hopper_rows import (
    LATENTS,
    ROPES,
    TILE,
    copy_columns,
    copy_tile,
    locate,
    rows_of_query,
    sync_warps,
    write_rows,
)


@gluon.jit
def add_rows(
    query,
    places,
    barriers,
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
    RESIDENT: gl.constexpr,
    WHOLE_LINES: gl.constexpr,
):
    """The groups that copy rows and, when those are weighed, add them, each half of the columns."""
    q_latent, q_first, q_rope, q_full = query
    latents, ropes, fades = places
    full, rope_full, weighed, empty, going = barriers
    DEPTH: gl.constexpr = latents.shape[0]
    L: gl.constexpr = latents.shape[2]
    # 8 lanes copy 128 bytes of a row: few rows a thread, whose addresses stay in registers
    copied: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    by_key: gl.constexpr = gl.SliceLayout(1, copied)
    # a packed row's first part comes through the other group's registers, its rope lies at 0
    ROPE_FROM: gl.constexpr = 0 if UNPACK else L
    token, head, real = rows_of_query(tokens, heads, HEADS_BLOCK, by_key)
    asked = Q + token.to(gl.int64) * stride_qt + head.to(gl.int64) * stride_qh
    copy_columns(q_latent, asked, real, 0, copied)
    copy_columns(q_rope, asked, real, L, copied)
    if RESIDENT:
        copy_columns(q_first, asked, real, 0, copied)
    async_copy.mbarrier_arrive(q_full, increment_count=False)
    for i in gl.static_range(DEPTH):
        start = begin + i * TILE
        found = locate(LATENT_BOX, ROWS, start, end, limit, PAGE, SPARSE, by_key)
        if i == LATENTS - 1:
            mbarrier.wait(empty.index(0), 0)
        if start < end:
            if not UNPACK:
                copy_tile(
                    latents.index(i), full.index(i), LATENT_BOX, CACHE, ROWS, found, start, end,
                    limit, stride_n, stride_p, 0, PAGE, SPARSE, copied,
                )  # fmt: skip
            if i < ROPES:
                copy_tile(
                    ropes.index(i), rope_full.index(i), ROPE_BOX, CACHE, ROWS, found, start, end,
                    limit, stride_n, stride_p, ROPE_FROM, PAGE, SPARSE, copied,
                )  # fmt: skip
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 2], instr_shape=[16, L // 2, 16]
    )
    by_row: gl.constexpr = gl.SliceLayout(1, layout)
    acc = gl.full([64, L], 0.0, gl.float32, layout=layout)
    for tile in range(gl.cdiv(end - begin, TILE)):
        start = begin + tile * TILE
        place = tile % DEPTH
        hand = tile % ROPES
        # where the tile's successors lie, before the wait hides what that takes
        later = start + DEPTH * TILE
        after = start + ROPES * TILE
        ahead = locate(LATENT_BOX, ROWS, later, end, limit, PAGE, SPARSE, by_key)
        mbarrier.wait(weighed.index(hand), tile // ROPES & 1)
        acc = acc * fades.index(hand).load(by_row)[:, None]
        if RESIDENT:  # noqa: SIM102
            # the next tile's logits go first: their group's softmax is what the sums can hide
            if start + TILE < end:
                mbarrier.wait(going.index(1 - hand), (tile + 1) // ROPES & 1)
        acc = warpgroup_mma(ropes.index(hand), latents.index(place), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        # both groups are done with the rows
        sync_warps()
        if UNPACK:
            mbarrier.arrive(empty.index(place))
        if not RESIDENT:
            found = ahead
        if after < end:
            copy_tile(
                ropes.index(hand), rope_full.index(hand), ROPE_BOX, CACHE, ROWS, found, after, end,
                limit, stride_n, stride_p, ROPE_FROM, PAGE, SPARSE, copied,
            )  # fmt: skip
        if not UNPACK:  # noqa: SIM102
            if later < end:
                copy_tile(
                    latents.index(place), full.index(place), LATENT_BOX, CACHE, ROWS, ahead, later,
                    end, limit, stride_n, stride_p, 0, PAGE, SPARSE, copied,
                )  # fmt: skip
        found = ahead
    mbarrier.wait(weighed.index(ROPES), 0)
    value = acc * fades.index(ROPES).load(by_row)[:, None]
    kind: gl.constexpr = OUT.dtype.element_ty
    if WHOLE_LINES:
        # through a place that no copy needs any more: the threads' own pieces are 4 bytes of a row
        latents.index(0).store(value.to(kind))
        sync_warps()
        lines: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0])
        rows = latents.index(0).load(lines)
        write_rows(OUT, rows, stride_ot, stride_oh, tokens, heads, HEADS_BLOCK, lines)
    else:
        write_rows(OUT, value.to(kind), stride_ot, stride_oh, tokens, heads, HEADS_BLOCK, layout)
