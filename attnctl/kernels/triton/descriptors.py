"""Tensor descriptors (TMA) over a paged cache: a page's rows of one head as one box of a matrix.

The cache is read as a matrix whose rows are the rows of its pages, in whichever order its strides
put them: NHD (heads side by side in a row), HND (a head's rows in succession), K and V interleaved
(every other page's worth of rows).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.triton.launch import split_width

Layout = tuple[int, int, int, int, int]


def descriptor_arguments(
    key_cache: Tensor, value_cache: Tensor, tile: int
) -> tuple[Any, ...] | None:
    """The prefill kernel's descriptor arguments, None where the cache's strides rule them out.

    Both caches' descriptors (low and high part of the width), then rows a page, rows a head and
    columns a head of each.
    """
    of_keys, of_values = matrix_layout(key_cache), matrix_layout(value_cache)
    if of_keys is None or of_values is None:
        return None
    from triton.tools.tensor_descriptor import TensorDescriptor

    made: list[Any] = []
    for cache, layout in ((key_cache, of_keys), (value_cache, of_values)):
        rows, columns, stride = layout[0], layout[1], cache.stride(1)
        for part in split_width(cache.shape[3]):
            shape = [rows, columns]
            made.append(TensorDescriptor(cache, shape, [stride, 1], [tile, part]) if part else None)
    (_, _, page_k, row_k, column_k), (_, _, page_v, row_v, column_v) = of_keys, of_values
    return (*made, page_k, page_v, row_k, row_v, column_k, column_v)


@lru_cache(maxsize=64)
def box_layout(rows: int, columns: int, dtype: torch.dtype) -> Any:
    """How boxes of 16-bit numbers lie in shared memory: what Gluon takes longest to work out."""
    from triton.experimental.gluon.language import NVMMASharedLayout, bfloat16, float16

    kind = bfloat16 if dtype is torch.bfloat16 else float16
    return NVMMASharedLayout.get_default_for([rows, columns], kind)


def based_on(box: Any, base: Tensor | None, **others: Any) -> Any:
    """A tensor descriptor over another tensor, and with other fields where they are given.

    Unchecked: the caller knows that it is aligned.
    """
    made = object.__new__(type(box))
    made.__dict__.update(box.__dict__, base=base, **others)
    return made


def matrix_layout(cache: Tensor) -> Layout | None:
    """Rows, columns, rows a page, rows a head, columns a head; None where it is no such matrix.

    A descriptor wants 16-byte steps and whole boxes: a width that is padded would read its
    neighbour's columns.
    """
    pages, page, heads, width = cache.shape
    by_page, row, by_head, step = cache.stride()
    aligned = cache.data_ptr() % 16 == 0 and row * cache.element_size() % 16 == 0
    if step != 1 or row == 0 or by_page % row or not aligned or sum(split_width(width)) != width:
        return None
    if by_head % row == 0 and heads > 1:
        rows_a_head, columns_a_head = by_head // row, 0
    else:
        rows_a_head, columns_a_head = 0, by_head
        if (heads - 1) * by_head + width > row:
            return None
    columns = columns_a_head * (heads - 1) + width
    rows = (pages - 1) * (by_page // row) + (heads - 1) * rows_a_head + page
    if rows >= 2**31 or columns_a_head * cache.element_size() % 16:
        return None
    return rows, columns, by_page // row, rows_a_head, columns_a_head
