"""The lightning indexer in vectorised torch, computed in float32."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.ops.indexer import Indexing, index_logits, pick_topk, write_index_keys
from attnctl.runtime import Metadata


class TorchIndexer:
    """The indexer's half of MlaSparseRuntime, on the processor."""

    def write_index(
        self, key: Tensor, index_cache: Tensor, metadata: Metadata, params: Indexing
    ) -> None:
        write_index_keys(key, index_cache, metadata.slot_mapping, params)

    def index_logits(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
    ) -> Tensor:
        places = (metadata.block_table, metadata.query_start_loc, metadata.seq_lens)
        return index_logits(query, weights, index_cache, *places, params, dtype=torch.float32)

    def select_tokens(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        out: Tensor | None = None,
    ) -> Tensor:
        if out is None:
            out = query.new_full((query.shape[0], params.topk), -1, dtype=torch.int32)
        live = int(metadata.query_start_loc[-1])
        logits = self.index_logits(query, weights, index_cache, metadata, params)
        out[:live] = pick_topk(logits[:live], params.topk)
        return out
