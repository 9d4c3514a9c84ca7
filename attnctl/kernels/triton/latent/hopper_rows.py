"""What the groups of the Hopper kernel of latent attention share: rows, their copies and writes."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import async_copy, mbarrier, tma

# Triton 3.7 renamed the one, 3.9 the other
sync_warps = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
copy_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
copy_box = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared

TILE = gl.constexpr(64)
"""Rows of a program and keys of a tile. Tiles of 32 keys in four buffers were slower."""

ROPES = gl.constexpr(2)
"""Rope parts of tiles in shared memory, each of which later holds the tile's weights."""

LATENTS = gl.constexpr(3)
"""Latent parts where the query's lies in registers but for FIRST columns. With two, a tile's copy
starts when the sums have its last predecessor but one, and its logits wait for all of it."""

FIRST = gl.constexpr(64)


@gluon.jit
def slots_of(
    ROWS,
    start,
    end,
    limit,
    PAGE: gl.constexpr,
    SPARSE: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """The slot of each key of a tile, -1 where it is not seen. ROWS: slots or pages."""
    key = start + gl.arange(0, TILE, layout=LAYOUT)
    seen = key < end
    if SPARSE:
        slot = gl.load(ROWS + key, mask=seen, other=-1)
        seen = slot < limit
    else:
        slot = gl.load(ROWS + key // PAGE, mask=seen, other=0) * PAGE + key % PAGE
    return gl.where(seen, slot, -1)


@gluon.jit
def rows_of_query(tokens, heads, HEADS_BLOCK: gl.constexpr, LAYOUT: gl.constexpr):
    """Query token and head of each row, both from the tile's first, and whether it exists."""
    row = gl.arange(0, TILE, layout=LAYOUT)
    token = row // HEADS_BLOCK
    head = row % HEADS_BLOCK
    return token, head, (token < tokens) & (head < heads)


@gluon.jit
def copy_columns(place, pointers, seen, FROM: gl.constexpr, LAYOUT: gl.constexpr):
    """Starts the copy of rows' columns to shared memory, zeros where a row is not seen."""
    column = FROM + gl.arange(0, place.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    copy_async(place, pointers[:, None] + column[None, :], mask=seen[:, None])


@gluon.jit
def rows_at(CACHE, slot, stride_n, stride_p, PAGE: gl.constexpr):
    """Where the rows of slots begin; a negative one's is not to be read."""
    whole = gl.maximum(slot, 0)
    return CACHE + (whole // PAGE).to(gl.int64) * stride_n + whole % PAGE * stride_p


@gluon.jit
def locate(
    BOX,
    ROWS,
    start,
    end,
    limit,
    PAGE: gl.constexpr,
    SPARSE: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """What copy_tile wants to know of a tile, whose loads take long: its page, or its slots."""
    if BOX is not None:
        found = gl.load(ROWS + start // PAGE, mask=start < end, other=0)
    else:
        found = slots_of(ROWS, start, end, limit, PAGE, SPARSE, LAYOUT)
    return found


@gluon.jit
def copy_tile(
    place,
    full,
    BOX,
    CACHE,
    ROWS,
    found,
    start,
    end,
    limit,
    stride_n,
    stride_p,
    FROM: gl.constexpr,
    PAGE: gl.constexpr,
    SPARSE: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """Starts the copy of some columns of a tile; `full` completes when they are there.

    As a box where a page holds whole tiles; the last rows of a sequence by pointers even then, for
    what lies behind them may hold anything.
    """
    if BOX is not None:
        if start + TILE <= end:
            mbarrier.expect(full, TILE * place.shape[1] * 2)
            copy_box(BOX, [found * PAGE + start % PAGE, FROM], full, place)
        else:
            by_key: gl.constexpr = gl.SliceLayout(1, LAYOUT)
            slot = slots_of(ROWS, start, end, limit, PAGE, SPARSE, by_key)
            pointers = rows_at(CACHE, slot, stride_n, stride_p, PAGE)
            copy_columns(place, pointers, slot >= 0, FROM, LAYOUT)
            # every thread's copies first count themselves in, then the one arrival stands alone
            async_copy.mbarrier_arrive(full)
            sync_warps()
            mbarrier.arrive(full)
    else:
        pointers = rows_at(CACHE, found, stride_n, stride_p, PAGE)
        copy_columns(place, pointers, found >= 0, FROM, LAYOUT)
        async_copy.mbarrier_arrive(full, increment_count=False)


@gluon.jit
def write_rows(
    OUT,
    value,
    stride_ot,
    stride_oh,
    tokens,
    heads,
    HEADS_BLOCK: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """Writes the rows of query tokens and heads that exist."""
    by_row: gl.constexpr = gl.SliceLayout(1, LAYOUT)
    token, head, real = rows_of_query(tokens, heads, HEADS_BLOCK, by_row)
    at = token.to(gl.int64) * stride_ot + head.to(gl.int64) * stride_oh
    column = gl.arange(0, value.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    gl.store(OUT + at[:, None] + column[None, :], value, mask=real[:, None])
