"""Calls of the compiled kernels of latent attention by ctypes: see attnctl.kernels.cpu.call."""

from __future__ import annotations

import ctypes
import struct

import torch
from torch import Tensor

from attnctl.kernels.cpu.call import TYPES, NativeKernels
from attnctl.kernels.cpu.latent_checks import dense, int32, refuse_batch
from attnctl.ops.mla import Latent
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata

# struct Latent and struct States of latent.cpp, member by member
_LATENT = struct.Struct("8P 22q 2d")
_STATES = struct.Struct("6P 19q")
# rows as attnctl.ops.packed_rows packs them
_PACKED = 6
CACHE_TYPES = {**{x: n for x, n in TYPES.items() if x is not torch.int8}, torch.uint8: _PACKED}


class NativeLatent:
    """The kernels of one shared object. Load it after torch: both then share one OpenMP."""

    name = "c++"

    def __init__(self, path: str, paged: str) -> None:
        """Paths of latent.cpp's and paged.cpp's shared objects."""
        self._paged = NativeKernels(paged)
        library = ctypes.CDLL(path)
        self._latent, self._merge = library.attnctl_latent, library.attnctl_merge_states
        for function in (self._latent, self._merge):
            function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_longlong

    def absorbed(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        out: Tensor,
        lse: Tensor,
    ) -> None:
        table = int32(metadata.block_table)
        starts, lens = int32(metadata.query_start_loc), int32(metadata.seq_lens)
        places = (table.data_ptr(), starts.data_ptr(), lens.data_ptr(), 0)
        sizes = (lens.shape[0], table.shape[1], table.stride(0), 0, 0)
        status = self._attend(query, cache, places, sizes, params, out, lse)
        if status:
            refuse_batch(status, metadata, query.shape[0], cache)

    def sparse(
        self, query: Tensor, cache: Tensor, slots: Tensor, params: Latent, out: Tensor, lse: Tensor
    ) -> None:
        slots = int32(slots)
        places = (0, 0, 0, slots.data_ptr())
        # an empty list has no address, and no address stands for the dense form
        if not slots.numel():
            out.zero_()
            lse.fill_(-torch.inf)
            return
        sizes = (slots.shape[0], 0, 0, slots.stride(0), slots.shape[1])
        self._attend(query, cache, places, sizes, params, out, lse)

    def _attend(
        self,
        query: Tensor,
        cache: Tensor,
        places: tuple[int, int, int, int],
        sizes: tuple[int, int, int, int, int],
        params: Latent,
        out: Tensor,
        lse: Tensor,
    ) -> int:
        query, cache = dense(query), dense(cache)
        size = cache.element_size()
        owners, pages, table_b, slots_t, listed = sizes
        arguments = _LATENT.pack(
            query.data_ptr(),
            cache.data_ptr(),
            out.data_ptr(),
            lse.data_ptr(),
            *places,
            TYPES[query.dtype],
            CACHE_TYPES[cache.dtype],
            owners,
            query.shape[1],
            params.kv_lora_rank,
            query.shape[2],
            cache.shape[1],
            cache.shape[0],
            query.shape[0],
            pages,
            *query.stride()[:2],
            *out.stride()[:2],
            *lse.stride(),
            cache.stride(0) * size,
            cache.stride(1) * size,
            table_b,
            slots_t,
            listed,
            torch.get_num_threads(),
            params.scale,
            params.kv_scale,
        )
        return int(self._latent(arguments))

    def uncompressed(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        key_start_loc: Tensor,
        metadata: Metadata,
        scale: float,
        *,
        causal: bool,
        max_keys: int,
    ) -> tuple[Tensor, Tensor]:
        query, heads = query.float(), query.shape[1]
        out = query.new_zeros(query.shape[0], heads, values.shape[2])
        lse = query.new_full(query.shape[:2], -torch.inf)
        if not max_keys:
            return out, lse
        starts = key_start_loc.to(torch.int32)
        # a page as long as the longest sequence may begin at any token: its table entry
        self._paged.attend(
            query,
            _pages(keys, max_keys),
            _pages(values, max_keys),
            starts[:-1, None],
            metadata.query_start_loc,
            starts.diff(),
            Paged(scale=scale, causal=causal),
            out,
            lse,
        )
        return out, lse

    def merge(
        self, out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, out: Tensor, lse: Tensor
    ) -> None:
        out_a, out_b = dense(out_a), dense(out_b)
        lse_a, lse_b = lse_a.float(), lse_b.float()
        arguments = _STATES.pack(
            out_a.data_ptr(),
            out_b.data_ptr(),
            lse_a.data_ptr(),
            lse_b.data_ptr(),
            out.data_ptr(),
            lse.data_ptr(),
            TYPES[out_a.dtype],
            TYPES[out_b.dtype],
            TYPES[out.dtype],
            *out_a.shape,
            *out_a.stride()[:2],
            *out_b.stride()[:2],
            *out.stride()[:2],
            *lse_a.stride(),
            *lse_b.stride(),
            *lse.stride(),
            torch.get_num_threads(),
        )
        self._merge(arguments)


def _pages(rows: Tensor, page: int) -> Tensor:
    """Packed rows [S, H, D] as pages that overlap, the first of them: [1, P, H, D]."""
    token, head, column = rows.stride()
    return rows.as_strided((1, page, *rows.shape[1:]), (token, token, head, column))
