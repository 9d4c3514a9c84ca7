"""Launches of Hopper's prefill kernel: which batches it takes, packed rows or pages."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.triton.descriptors import based_on, box_layout, matrix_layout
from attnctl.kernels.triton.gluon_version import known_triton
from attnctl.kernels.triton.launch import Device, Launch, split_width
from attnctl.kernels.triton.paged.prefill_forms import (
    LONG,
    Cut,
    Form,
    counts_units,
    cut_units,
    form_of,
)
from attnctl.kernels.triton.relaunch import new_counts

WIDTHS = ((128, 0), (128, 64))
"""Low and high part of the keys that the kernel is written for; its values are 128 wide."""


def packed_launch(
    tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    starts: Tensor,
    key_starts: Tensor,
    parts: tuple[int, int],
    factor: float,
    causal: bool,
    longest: int,
    gpu: Device,
    counts: Callable[[], Tensor] | None = None,
    form: Form | None = None,
) -> Launch | None:
    """Queries over packed keys and values. tensors: Q, K, V, OUT, LSE; parts: of the key's width.

    longest: query tokens of a sequence at most; form: the one for this batch if none is given.

    None where the kernel does not take the batch: keys of 128 or 192 columns, values of 128, of 16
    bits, one row a token.
    """
    query, keys, values, out, lse = tensors
    if not _fits(gpu, tensors[:3], parts) or factor <= 0:
        return None
    if not _is_matrix(keys) or not _is_matrix(values):
        return None
    tokens, heads, _ = query.shape
    sequences = starts.shape[0] - 1
    rows = keys.shape[0] / sequences
    head_bytes = int(rows * (sum(parts) + 128) * 2)
    form = form or form_of(tokens, keys.shape[0], sequences, longest, heads, gpu.units)
    low, high = parts
    boxes = (
        *_query_boxes(query, parts, min(form.box, 64)),
        _packed_box(keys, form.box, low),
        _packed_box(keys, form.box, high or 64),
        _packed_box(values, form.box, 128),
    )
    strides = (query.stride(1), keys.stride(1), values.stride(1), 0, 0, 0, 0, 0)
    numbers = (*out.stride()[:2], *lse.stride(), factor, 1.0, sequences)
    cut = cut_units(tokens, sequences, longest, heads, 1, head_bytes, form)
    constants = _constants(form, parts, causal, page=0, ratio=1)
    # without pages the table is not read, but a group of warps takes no None
    tensors = (out, lse, starts, key_starts, starts)
    return _launch(boxes, tensors, counts, strides, numbers, cut, form, longest, constants, gpu)


def paged_launch(
    tensors: tuple[Tensor, ...],
    factor: float,
    v_scale: float,
    causal: bool,
    longest: tuple[int, int],
    gpu: Device,
    counts: Callable[[], Tensor] | None = None,
) -> Launch | None:
    """Queries over pages. tensors: Q, K and V cache, OUT, table, starts, lengths.

    longest: query tokens and keys of a sequence at most.

    None where the kernel does not take the batch: keys of 128 or 192 columns, values of 128, of 16
    bits, pages of 16, 32, 64 or whole tiles, a head's rows of a page one below the other.
    """
    query, keys, values, out, table, starts, lengths = tensors
    page, parts = keys.shape[1], split_width(keys.shape[3])
    if not _fits(gpu, tensors[:3], parts) or factor <= 0:
        return None
    if page < 16 or (LONG.keys % page and page % LONG.keys):
        return None
    of_keys, of_values = matrix_layout(keys), matrix_layout(values)
    if of_keys is None or of_values is None or out.stride(2) != 1:
        return None
    tokens, heads, _ = query.shape
    ratio = heads // keys.shape[2]
    boxes = (
        *_query_boxes(query, parts, 64),
        _paged_box(keys, of_keys, parts[0]),
        _paged_box(keys, of_keys, parts[1] or 64),
        _paged_box(values, of_values, 128),
    )
    (_, _, page_k, row_k, column_k), (_, _, page_v, row_v, column_v) = of_keys, of_values
    strides = (query.stride(1), column_k, column_v, row_k, row_v, page_k, page_v, table.stride(0))
    numbers = (*out.stride()[:2], 0, 0, factor, v_scale, lengths.shape[0])
    head_bytes = longest[1] * (sum(parts) + 128) * 2
    cut = cut_units(tokens, lengths.shape[0], longest[0], heads, ratio, head_bytes)
    constants = _constants(LONG, parts, causal, page=page, ratio=ratio)
    tensors = (out, out, starts, lengths, table)
    return _launch(boxes, tensors, counts, strides, numbers, cut, LONG, longest[0], constants, gpu)


def _fits(gpu: Device, tensors: tuple[Tensor, ...], parts: tuple[int, int]) -> bool:
    query, keys, values = tensors
    if gpu.arch != "sm_90" or parts not in WIDTHS or values.shape[-1] != 128:
        return False
    if sum(parts) != keys.shape[-1] or not known_triton():
        return False
    same = all(one.element_size() == 2 and one.dtype is query.dtype for one in tensors)
    return same and _is_matrix(query)


def _is_matrix(one: Tensor) -> bool:
    """Whether [S, H, D] is a matrix of one row a token that boxes can be cut from."""
    apart = one.stride(0) * one.element_size() % 16 == 0 and one.data_ptr() % 16 == 0
    inside = one.stride(1) * (one.shape[1] - 1) + one.shape[2] <= one.stride(0) < 2**31
    return bool(one.stride(2) == 1 and apart and inside and one.shape[0] > 0)


def _query_boxes(query: Tensor, parts: tuple[int, int], rows: int) -> tuple[Any, Any]:
    # without a high part its box is not read, but a group of warps takes no None
    return _packed_box(query, rows, parts[0]), _packed_box(query, rows, parts[1] or 64)


def _packed_box(tensor: Tensor, rows: int, columns: int) -> Any:
    tokens, heads, width = tensor.shape
    shape = [tokens, tensor.stride(1) * (heads - 1) + width]
    return _box(tensor, shape, tensor.stride(0), rows, columns)


def _paged_box(cache: Tensor, layout: tuple[int, int, int, int, int], columns: int) -> Any:
    return _box(cache, list(layout[:2]), cache.stride(1), min(cache.shape[1], LONG.keys), columns)


def _box(tensor: Tensor, shape: list[int], stride: int, rows: int, columns: int) -> Any:
    blank = _blank_box(rows, columns, tensor.dtype)
    return based_on(blank, tensor, shape=shape, strides=[stride, 1])


@lru_cache(maxsize=64)
def _blank_box(rows: int, columns: int, dtype: torch.dtype) -> Any:
    """A descriptor of some tensor, whose own checks take longer than a launch."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    layout = box_layout(rows, columns, dtype)
    some = torch.empty(rows, columns, dtype=dtype, device="meta")
    return TensorDescriptor(some, [rows, columns], [columns, 1], [rows, columns], layout)


def _constants(
    form: Form, parts: tuple[int, int], causal: bool, *, page: int, ratio: int
) -> dict[str, Any]:
    return {
        "GROUPS": form.groups,
        "KEYS": form.keys,
        "DEPTH": form.depth,
        "QUERIES": form.queries,
        "D_LOW": parts[0],
        "D_HIGH": parts[1],
        "DV": 128,
        "CAUSAL": causal,
        "PAGE": page,
        "RATIO": ratio,
        "num_warps": 4,
        **({"maxnreg": 256 // form.programs // 8 * 8} if form.programs > 1 else {}),
    }


def _launch(
    boxes: tuple[Any, ...],
    tensors: tuple[Tensor, ...],
    counts: Callable[[], Tensor] | None,
    strides: tuple[int, ...],
    numbers: tuple[float, ...],
    cut: Cut,
    form: Form,
    longest: int,
    constants: dict[str, Any],
    gpu: Device,
) -> Launch:
    from attnctl.kernels.triton.paged.prefill_hopper import prefill_hopper_kernel

    programs = min(gpu.units * form.programs, cut.units)
    # without a counter it is not read, but a group of warps takes no None
    counted, counter = counts_units(cut, form, longest, programs), tensors[2]
    if counted:
        counter = counts() if counts is not None else new_counts(tensors[0].device)
    arguments = (*boxes, *tensors, counter, *strides, *numbers, *cut, int(counted))
    return Launch(prefill_hopper_kernel, (programs,), arguments, constants)
