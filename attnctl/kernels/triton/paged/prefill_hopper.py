"""Prefill on Hopper: groups of warps with 64 query rows each, and a warp that copies for them.

While one group computes its softmax the other has the matrix unit, be it of the same program or of
another one beside it (prefill_forms), and each group multiplies the next keys before it waits for
the last weights' product. Rows arrive as boxes, keys from the last to the first, so that only the
first tiles need a mask. As many programs as the device runs at once go through all units: what a
unit reads is on its way while the one before it is finished. Written in Gluon, as latent/hopper.py.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from attnctl.kernels.triton.latent.hopper import sync_warps
from attnctl.kernels.triton.paged.prefill_copy import copy_units
from attnctl.kernels.triton.paged.prefill_groups import attend_rows


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
