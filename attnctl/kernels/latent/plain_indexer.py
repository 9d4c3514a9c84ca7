"""The lightning indexer in vectorised torch, computed in float32: what serves any processor."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.plain_torch import CPU, plain_torch
from attnctl.ops.indexer import Indexing, index_logits, pick_topk
from attnctl.runtime import Metadata


class TorchIndexer:
    """attnctl.kernels.cpu.latent.IndexerKernels without a compiler."""

    name = "torch"

    @plain_torch(CPU)
    def logits(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        out: Tensor,
    ) -> None:
        found = _logits(query, weights, index_cache, metadata, params)
        out[: found.shape[0]] = found

    @plain_torch(CPU)
    def select(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        out: Tensor,
    ) -> None:
        found = _logits(query, weights, index_cache, metadata, params)
        out[: found.shape[0]] = pick_topk(found, params.topk)


def _logits(
    query: Tensor, weights: Tensor, index_cache: Tensor, metadata: Metadata, params: Indexing
) -> Tensor:
    """[T, longest context] float32 of the rows of sequences."""
    places = (metadata.block_table, metadata.query_start_loc, metadata.seq_lens)
    found = index_logits(query, weights, index_cache, *places, params, dtype=torch.float32)
    return found[: int(metadata.query_start_loc[-1])]
