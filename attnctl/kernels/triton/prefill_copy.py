"""The warp of Hopper's prefill kernel that copies: queries, keys and values as boxes."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from attnctl.kernels.triton.mla_hopper import copy_box, sync_warps
from attnctl.kernels.triton.prefill_units import TILE, place_of, tiles_of


@gluon.jit
def copy_rows(
    LOW,
    HIGH,
    TABLE,
    full,
    low,
    high,
    key_first,
    key,
    length,
    row_head,
    column,
    page_rows,
    stride_table,
    WIDTH_HIGH: gl.constexpr,
    PAGE: gl.constexpr,
):
    """Starts the copy of a tile of keys or values, as one box or as one of each page."""
    mbarrier.expect(full, TILE * (low.shape[1] + WIDTH_HIGH) * 2)
    if PAGE == 0:
        copy_box(LOW, [key_first + key, column], full, low)
        if WIDTH_HIGH > 0:
            copy_box(HIGH, [key_first + key, column + low.shape[1]], full, high)
    else:
        # a box outside the matrix is zeros: pages behind the last need no place, only a number
        table = TABLE + key_first.to(gl.int64) * stride_table + key // PAGE
        if PAGE >= TILE:
            row = gl.load(table, mask=key < length, other=0) * page_rows + row_head + key % PAGE
            copy_box(LOW, [row, column], full, low)
            if WIDTH_HIGH > 0:
                copy_box(HIGH, [row, column + low.shape[1]], full, high)
        else:
            # all pages are asked for before the first is waited for
            pages = ()
            for i in gl.static_range(TILE // PAGE):
                page = gl.load(table + i, mask=key + i * PAGE < length, other=0)
                pages = pages + (page,)  # type: ignore[assignment]  # noqa: RUF005
            for i in gl.static_range(TILE // PAGE):
                row = pages[i] * page_rows + row_head
                copy_box(LOW, [row, column], full, low.slice(i * PAGE, PAGE, dim=0))
                if WIDTH_HIGH > 0:
                    part = high.slice(i * PAGE, PAGE, dim=0)
                    copy_box(HIGH, [row, column + low.shape[1]], full, part)


@gluon.jit
def copy_units(
    q_lows,
    q_highs,
    k_lows,
    k_highs,
    values,
    q_full,
    k_full,
    v_full,
    q_empty,
    k_empty,
    v_empty,
    units,
    announced,
    Q_LOW,
    Q_HIGH,
    K_LOW,
    K_HIGH,
    V_BOX,
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
    sequences,
    tiles_a_head,
    tiles_a_sequence,
    together,
    total,
    D_HIGH: gl.constexpr,
    CAUSAL: gl.constexpr,
    PAGE: gl.constexpr,
    RATIO: gl.constexpr,
):
    """Copies what each unit needs as places fall free, and announces the next one.

    COUNTS: units taken beside each program's first, programs that are done; zeros before and after.
    """
    lane: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    D_LOW: gl.constexpr = q_lows.shape[2]
    programs = gl.num_programs(0)
    unit = gl.program_id(0)
    head, begin, first, queries, key_first, length = place_of(
        unit, total, STARTS, KEY_STARTS, sequences, tiles_a_head, tiles_a_sequence, together,
        PAGE,
    )  # fmt: skip
    while (begin >= queries) & (unit < total):
        unit = programs + gl.atomic_add(COUNTS, 1)
        head, begin, first, queries, key_first, length = place_of(
            unit, total, STARTS, KEY_STARTS, sequences, tiles_a_head, tiles_a_sequence, together,
            PAGE,
        )  # fmt: skip
    units.index(0).store(gl.full([1], unit, gl.int32, layout=lane))
    sync_warps()
    mbarrier.arrive(announced.index(0))
    copied = 0
    done = 0
    while unit < total:
        count, _whole, _position = tiles_of(begin, queries, length, CAUSAL)
        kv_head = head // RATIO
        row_k = kv_head * row_kh
        row_v = kv_head * row_vh
        column_k = kv_head * column_kh
        column_v = kv_head * column_vh
        last = (count - 1) * TILE
        next_unit = unit
        next_head = head
        next_begin = begin
        next_first = first
        next_queries = queries
        next_key_first = key_first
        next_length = length
        for step in range(count + 1):
            n = copied + step
            if step < count:
                place = n % 2
                mbarrier.wait(k_empty.index(place), (n // 2 & 1) ^ 1)
                copy_rows(
                    K_LOW, K_HIGH, TABLE, k_full.index(place), k_lows.index(place),
                    k_highs.index(place), key_first, last - step * TILE, length, row_k, column_k,
                    page_k, stride_table, D_HIGH, PAGE,
                )  # fmt: skip
            if step == 0:
                column_q = head * stride_qh
                for i in gl.static_range(2):
                    mbarrier.wait(q_empty.index(i), (done & 1) ^ 1)
                    mbarrier.expect(q_full.index(i), 64 * (D_LOW + D_HIGH) * 2)
                    at = first + begin + i * 64
                    copy_box(Q_LOW, [at, column_q], q_full.index(i), q_lows.index(i))
                    if D_HIGH > 0:
                        copy_box(Q_HIGH, [at, column_q + D_LOW], q_full.index(i), q_highs.index(i))
            else:
                # the values of a tile are wanted when the next keys have been multiplied
                place = (n - 1) % 2
                mbarrier.wait(v_empty.index(place), ((n - 1) // 2 & 1) ^ 1)
                copy_rows(
                    V_BOX, V_BOX, TABLE, v_full.index(place), values.index(place),
                    values.index(place), key_first, last - (step - 1) * TILE, length, row_v,
                    column_v, page_v, stride_table, 0, PAGE,
                )  # fmt: skip
            if step == count // 2 + 1:
                # nothing waits for this: the places are full in the midst of a unit
                next_begin = 1
                next_queries = 0
                while (next_begin >= next_queries) & (next_unit < total):
                    next_unit = programs + gl.atomic_add(COUNTS, 1)
                    next_head, next_begin, next_first, next_queries, next_key_first, next_length = (
                        place_of(
                            next_unit, total, STARTS, KEY_STARTS, sequences, tiles_a_head,
                            tiles_a_sequence, together, PAGE,
                        )
                    )  # fmt: skip
                # the place is free: this unit's queries were copied when both groups had read the
                # one before it
                after = (done + 1) % 2
                units.index(after).store(gl.full([1], next_unit, gl.int32, layout=lane))
                sync_warps()
                mbarrier.arrive(announced.index(after))
        copied += count
        done += 1
        unit = next_unit
        head = next_head
        begin = next_begin
        first = next_first
        queries = next_queries
        key_first = next_key_first
        length = next_length
    if gl.atomic_add(COUNTS + 1, 1) == programs - 1:
        gl.store(COUNTS, 0)
        gl.store(COUNTS + 1, 0)
