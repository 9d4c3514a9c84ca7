"""Calls of the compiled indexer by ctypes: see attnctl.kernels.cpu.call."""

from __future__ import annotations

import ctypes
import struct

import torch
from torch import Tensor

from attnctl.kernels.cpu.call import TYPES
from attnctl.kernels.cpu.latent_checks import dense, int32, refuse_batch
from attnctl.ops.indexer import Indexing, head_dim_of
from attnctl.runtime import Metadata

# struct Indexer of indexer.cpp, member by member
_INDEXER = struct.Struct("8P 18q d")


class NativeIndexer:
    """The kernels of one shared object. Load it after torch: both then share one OpenMP."""

    name = "c++"

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self._index, self._pick = library.attnctl_index, library.attnctl_pick
        self._index.argtypes, self._index.restype = [ctypes.c_char_p], ctypes.c_longlong
        sizes = [ctypes.c_longlong] * 3
        self._pick.argtypes = [ctypes.c_void_p, *sizes, ctypes.c_void_p]
        self._pick.restype = None

    def logits(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        out: Tensor,
    ) -> None:
        """Fills out [T, longest context] float32 in the rows of sequences, -inf elsewhere in them.

        Columns behind a sequence's context stay as they are.
        """
        self._call(query, weights, index_cache, metadata, params, out, None)

    def select(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        out: Tensor,
    ) -> None:
        """Fills out [T, K] int32, its rows dense, in the rows of sequences."""
        self._call(query, weights, index_cache, metadata, params, None, out)

    def pick(self, logits: Tensor, topk: int) -> Tensor:
        """attnctl.ops.indexer.pick_topk of float32 logits."""
        logits = logits.contiguous()
        picks = logits.new_empty((logits.shape[0], topk), dtype=torch.int32)
        self._pick(logits.data_ptr(), *logits.shape, topk, picks.data_ptr())
        return picks

    def _call(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        logits: Tensor | None,
        picks: Tensor | None,
    ) -> None:
        query, weights, cache = dense(query), weights.float(), index_cache
        starts, lens = int32(metadata.query_start_loc), int32(metadata.seq_lens)
        table = int32(metadata.block_table)
        cache.view(cache.shape[0], -1)  # a page's bytes must lie together
        arguments = _INDEXER.pack(
            query.data_ptr(),
            weights.data_ptr(),
            cache.data_ptr(),
            table.data_ptr(),
            starts.data_ptr(),
            lens.data_ptr(),
            0 if logits is None else logits.data_ptr(),
            0 if picks is None else picks.data_ptr(),
            TYPES[query.dtype],
            lens.shape[0],
            query.shape[1],
            head_dim_of(cache),
            cache.shape[1],
            params.topk,
            cache.shape[0],
            query.shape[0],
            table.shape[1],
            *query.stride()[:2],
            *weights.stride(),
            0 if logits is None else logits.stride(0),
            0 if picks is None else picks.stride(0),
            cache.stride(0),
            table.stride(0),
            torch.get_num_threads(),
            params.scale,
        )
        status = int(self._index(arguments))
        if status:
            refuse_batch(status, metadata, query.shape[0], cache)
