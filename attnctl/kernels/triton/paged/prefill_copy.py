"""The warp of Hopper's prefill kernel that copies: queries, keys and values as boxes."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from attnctl.kernels.triton.latent.hopper import copy_box, sync_warps
from attnctl.kernels.triton.paged.prefill_units import place_of, tiles_of


@gluon.jit
def copy_boxes(LOW, HIGH, full, low, high, row, column, rows, WIDTH_HIGH: gl.constexpr):
    """Starts the copy of a tile's first rows by boxes, at least one: none lies behind `rows`."""
    BOX: gl.constexpr = LOW.block_shape[0]
    BOXES: gl.constexpr = low.shape[0] // BOX
    if BOXES <= 1:
        mbarrier.expect(full, low.shape[0] * (low.shape[1] + WIDTH_HIGH) * 2)
        copy_box(LOW, [row, column], full, low)
        if WIDTH_HIGH > 0:
            copy_box(HIGH, [row, column + low.shape[1]], full, high)
    else:
        boxes = gl.minimum(gl.maximum(gl.cdiv(rows, BOX), 1), BOXES)
        BYTES: gl.constexpr = BOX * (low.shape[1] + WIDTH_HIGH) * 2
        for i in gl.static_range(BOXES):
            mbarrier.expect(full, (i + 1) * BYTES, pred=boxes == i + 1)
        for i in gl.static_range(BOXES):
            there = i < boxes
            at = row + i * BOX
            copy_box(LOW, [at, column], full, low.slice(i * BOX, BOX, dim=0), pred=there)
            if WIDTH_HIGH > 0:
                part = high.slice(i * BOX, BOX, dim=0)
                copy_box(HIGH, [at, column + low.shape[1]], full, part, pred=there)


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
    TILE: gl.constexpr = low.shape[0]
    if PAGE == 0:
        rows = length - key
        copy_boxes(LOW, HIGH, full, low, high, key_first + key, column, rows, WIDTH_HIGH)
    else:
        mbarrier.expect(full, TILE * (low.shape[1] + WIDTH_HIGH) * 2)
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
    places,
    barriers,
    boxes,
    sources,
    steps,
    cut,
    counted,
    GROUPS: gl.constexpr,
    D_HIGH: gl.constexpr,
    CAUSAL: gl.constexpr,
    PAGE: gl.constexpr,
    RATIO: gl.constexpr,
):
    """Copies what each unit needs as places fall free, and announces the next one.

    COUNTS: units taken beside each program's first, programs that are done; zeros before and after.
    Not counted, every program takes each programs-th unit, and COUNTS is not touched.
    """
    q_lows, q_highs, k_lows, k_highs, values = places
    q_full, k_full, v_full, q_empty, k_empty, v_empty, units, announced = barriers
    Q_LOW, Q_HIGH, K_LOW, K_HIGH, V_BOX = boxes
    STARTS, KEY_STARTS, TABLE, COUNTS = sources
    stride_qh, column_kh, column_vh, row_kh, row_vh, page_k, page_v, stride_table = steps
    sequences, tiles_a_head, tiles_a_sequence, together, total = cut
    lane: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    KEYS: gl.constexpr = values.shape[1]
    DEPTH: gl.constexpr = values.shape[0]
    ROWS: gl.constexpr = GROUPS * 64
    PLACES: gl.constexpr = units.shape[0]
    QUERIES: gl.constexpr = PLACES - 1
    programs = gl.num_programs(0)
    unit = gl.program_id(0)
    head, begin, first, queries, key_first, length = place_of(
        unit, total, STARTS, KEY_STARTS, sequences, tiles_a_head, tiles_a_sequence, together,
        ROWS, PAGE,
    )  # fmt: skip
    while (begin >= queries) & (unit < total):
        if counted:
            unit = programs + gl.atomic_add(COUNTS, 1)
        else:
            unit += programs
        head, begin, first, queries, key_first, length = place_of(
            unit, total, STARTS, KEY_STARTS, sequences, tiles_a_head, tiles_a_sequence, together,
            ROWS, PAGE,
        )  # fmt: skip
    units.index(0).store(gl.full([1], unit, gl.int32, layout=lane))
    sync_warps()
    mbarrier.arrive(announced.index(0))
    copied = 0
    done = 0
    while unit < total:
        count, _whole, _position = tiles_of(begin, queries, length, ROWS, KEYS, CAUSAL)
        kv_head = head // RATIO
        row_k = kv_head * row_kh
        row_v = kv_head * row_vh
        column_k = kv_head * column_kh
        column_v = kv_head * column_vh
        last = (count - 1) * KEYS
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
                place = n % DEPTH
                mbarrier.wait(k_empty.index(place), (n // DEPTH & 1) ^ 1)
                copy_rows(
                    K_LOW, K_HIGH, TABLE, k_full.index(place), k_lows.index(place),
                    k_highs.index(place), key_first, last - step * KEYS, length, row_k, column_k,
                    page_k, stride_table, D_HIGH, PAGE,
                )  # fmt: skip
            if step == 0:
                column_q = head * stride_qh
                for i in gl.static_range(GROUPS):
                    asked = done % QUERIES * GROUPS + i
                    mbarrier.wait(q_empty.index(asked), (done // QUERIES & 1) ^ 1)
                    copy_boxes(
                        Q_LOW, Q_HIGH, q_full.index(asked), q_lows.index(asked),
                        q_highs.index(asked), first + begin + i * 64, column_q,
                        queries - begin - i * 64, D_HIGH,
                    )  # fmt: skip
            else:
                # the values of a tile are wanted when the next keys have been multiplied
                place = (n - 1) % DEPTH
                mbarrier.wait(v_empty.index(place), ((n - 1) // DEPTH & 1) ^ 1)
                copy_rows(
                    V_BOX, V_BOX, TABLE, v_full.index(place), values.index(place),
                    values.index(place), key_first, last - (step - 1) * KEYS, length, row_v,
                    column_v, page_v, stride_table, 0, PAGE,
                )  # fmt: skip
            if step == count // 2 + 1:
                # nothing waits for this: the places are full in the midst of a unit
                next_begin = 1
                next_queries = 0
                while (next_begin >= next_queries) & (next_unit < total):
                    if counted:
                        next_unit = programs + gl.atomic_add(COUNTS, 1)
                    else:
                        next_unit += programs
                    next_head, next_begin, next_first, next_queries, next_key_first, next_length = (
                        place_of(
                            next_unit, total, STARTS, KEY_STARTS, sequences, tiles_a_head,
                            tiles_a_sequence, together, ROWS, PAGE,
                        )
                    )  # fmt: skip
                # the place is free: this unit's queries were copied when all groups had read the
                # one that lay there
                after = (done + 1) % PLACES
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
    # not joined: Triton's `and` would count in any case
    if counted:  # noqa: SIM102
        if gl.atomic_add(COUNTS + 1, 1) == programs - 1:
            gl.store(COUNTS, 0)
            gl.store(COUNTS + 1, 0)
