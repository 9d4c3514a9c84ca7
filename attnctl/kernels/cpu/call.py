"""Calls of the compiled kernels by ctypes: each call's arguments are packed into one block."""

from __future__ import annotations

import ctypes
import struct

import torch
from torch import Tensor

from attnctl.ops.paged import Paged

# a window that excludes nothing; NONE in paged_call.h
NONE = 1 << 40

# struct Attention and struct Writes of paged_call.h, member by member
_ATTENTION = struct.Struct("13P 37q 4d")
_WRITES = struct.Struct("7P 24q 2d")

TYPES = {
    torch.float32: 0,
    torch.float16: 1,
    torch.bfloat16: 2,
    torch.float8_e4m3fn: 3,
    torch.float8_e5m2: 4,
    torch.int8: 5,
}
OWN_DIRECT_ROWS = -1
"""Rows of a group up to which keys are read where they are, not packed: the source's own value."""

UNTUNED = (0, 0, 0, OWN_DIRECT_ROWS)
_NO_STRIDES = (0, 0, 0)


class NativeKernels:
    """The kernels of one shared object. Load it after torch: both then share one OpenMP."""

    name = "c++"

    def __init__(self, path: str) -> None:
        self._threads = 0
        self._tuned = UNTUNED
        library = ctypes.CDLL(path)
        self._attend, self._write = library.attnctl_attend, library.attnctl_write
        for function in (self._attend, self._write):
            function.argtypes, function.restype = [ctypes.c_char_p], None

    def tune(
        self,
        threads: int = 0,
        least_tokens: int = 0,
        parts: int = 0,
        block_rows: int = 0,
        direct_rows: int = OWN_DIRECT_ROWS,
    ) -> None:
        """Sets what may be tuned; 0, of direct_rows -1, is the source's own, of threads torch's."""
        self._threads = threads
        self._tuned = (least_tokens, parts, block_rows, direct_rows)

    def attend(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        block_table: Tensor,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        params: Paged,
        out: Tensor,
        lse: Tensor | None = None,
    ) -> None:
        """lse: [T, H] float32, written where given; a sink is no part of it."""
        _, page, kv_heads, width = key_cache.shape
        sequences = seq_lens.shape[0]
        query_t, query_h, dense = query.stride()
        if dense != 1:
            query = query.contiguous()
            query_t, query_h, _ = query.stride()
        table, starts, lens = _int32(block_table), _int32(query_start_loc), _int32(seq_lens)
        key_n, key_p, key_h, _ = key_cache.stride()
        value_n, value_p, value_h, _ = value_cache.stride()
        out_t, out_h, _ = out.stride()
        k_scale, v_scale = params.k_scale, params.v_scale
        if isinstance(k_scale, Tensor):
            scales = (k_scale.data_ptr(), v_scale.data_ptr())  # type: ignore[union-attr]
            strides = (*k_scale.stride(), *v_scale.stride())  # type: ignore[union-attr]
            k_scale = v_scale = 1.0
        else:
            scales, strides = (0, 0), (*_NO_STRIDES, *_NO_STRIDES)
        sinks, slopes = _float32(params.sinks), _float32(params.alibi_slopes)
        ranges = None if params.prefix_ranges is None else _int32(params.prefix_ranges)
        arguments = _ATTENTION.pack(
            query.data_ptr(),
            key_cache.data_ptr(),
            value_cache.data_ptr(),
            out.data_ptr(),
            table.data_ptr(),
            starts.data_ptr(),
            lens.data_ptr(),
            0 if sinks is None else sinks.data_ptr(),
            0 if slopes is None else slopes.data_ptr(),
            0 if ranges is None else ranges.data_ptr(),
            *scales,
            0 if lse is None else lse.data_ptr(),
            TYPES[query.dtype],
            TYPES[key_cache.dtype],
            sequences,
            query.shape[1],
            kv_heads,
            width,
            value_cache.shape[3],
            page,
            query_t,
            query_h,
            out_t,
            out_h,
            *((0, 0) if lse is None else lse.stride()),
            key_n,
            key_p,
            key_h,
            value_n,
            value_p,
            value_h,
            *strides,
            table.stride(0),
            0 if ranges is None else ranges.shape[1],
            params.causal,
            NONE if params.window is None else params.window,
            NONE if params.window_right is None else params.window_right,
            params.chunk or 0,
            self._threads or torch.get_num_threads(),
            *self._tuned,
            params.scale,
            params.softcap or 0.0,
            k_scale,
            v_scale,
        )
        self._attend(arguments)

    def write(
        self,
        key: Tensor,
        value: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        slot_mapping: Tensor,
        k_scale: float | Tensor,
        v_scale: float | Tensor,
    ) -> None:
        key, value = _dense(key), _dense(value)
        slots = slot_mapping.to(torch.int64).contiguous()
        if isinstance(k_scale, Tensor):
            scales = (k_scale.data_ptr(), v_scale.data_ptr())  # type: ignore[union-attr]
            strides = (*k_scale.stride(), *v_scale.stride())  # type: ignore[union-attr]
            k_scale = v_scale = 1.0
        else:
            scales, strides = (0, 0), (*_NO_STRIDES, *_NO_STRIDES)
        arguments = _WRITES.pack(
            key.data_ptr(),
            value.data_ptr(),
            key_cache.data_ptr(),
            value_cache.data_ptr(),
            slots.data_ptr(),
            *scales,
            TYPES[key.dtype],
            TYPES[key_cache.dtype],
            min(slots.shape[0], key.shape[0]),
            key.shape[1],
            key.shape[2],
            value.shape[2],
            key_cache.shape[1],
            *key.stride()[:2],
            *value.stride()[:2],
            *key_cache.stride()[:3],
            *value_cache.stride()[:3],
            *strides,
            torch.get_num_threads(),
            k_scale,
            v_scale,
        )
        self._write(arguments)


def _dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _int32(tensor: Tensor) -> Tensor:
    if tensor.dtype is torch.int32 and tensor.is_contiguous():
        return tensor
    if tensor.dim() == 2 and tensor.dtype is torch.int32 and tensor.stride(1) == 1:
        return tensor
    return tensor.to(torch.int32).contiguous()


def _float32(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.to(torch.float32).contiguous()
