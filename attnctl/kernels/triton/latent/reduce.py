"""The pass that joins the segments that the kernels of latent attention cut keys in."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def reduce_kernel(
    PART,
    PART_LSE,
    OUT,
    LSE,
    STARTS,
    stride_ot,
    stride_oh,
    stride_st,
    stride_sh,
    sequences,
    HEADS: tl.constexpr,
    L: tl.constexpr,
    COLUMNS: tl.constexpr,
    SEGMENTS: tl.constexpr,
    SEGMENTS_BLOCK: tl.constexpr,
    AWAIT: tl.constexpr,
):
    """Joins the segments of a query token and head. Grid: (T, H, parts of COLUMNS columns).

    AWAIT: this kernel was launched before the end of the one that writes the segments.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    if AWAIT:
        tl.extra.cuda.gdc_wait()
    # loads that wait for each other cost more than what they would save of the last
    real = token < tl.load(STARTS + sequences)
    segment = tl.arange(0, SEGMENTS_BLOCK)
    inside = segment < SEGMENTS
    at = (token * HEADS + head) * SEGMENTS + segment
    tops = tl.load(PART_LSE + at, mask=inside, other=float("-inf"))
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    keep = inside[:, None] & (column < L)[None, :]
    parts = tl.load(PART + at[:, None] * L + column[None, :], mask=keep, other=0.0)
    top = tl.max(tops, 0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp2(tops - shift)
    total = tl.sum(weights, 0)
    safe = tl.where(total > 0.0, total, 1.0)
    # what a segment without keys leaves may be anything
    parts = tl.where((tops > float("-inf"))[:, None], parts, 0.0)
    value = tl.sum(parts * weights[:, None], 0) / safe
    pointers = OUT + token * stride_ot + head.to(tl.int64) * stride_oh + column
    tl.store(pointers, value.to(OUT.dtype.element_ty), mask=real & (column < L))
    # two ifs: without LSE nothing of the second may be compiled
    if LSE is not None:  # noqa: SIM102
        if tl.program_id(2) == 0:
            lse = tl.where(total > 0.0, (shift + tl.log2(safe)) * 0.6931471805599453, top)
            tl.store(LSE + token * stride_st + head.to(tl.int64) * stride_sh, lse, mask=real)
