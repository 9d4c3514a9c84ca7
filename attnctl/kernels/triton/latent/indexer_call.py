"""The indexer's half of a sparse backend in Triton: write keys, logits, picks."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.latent.states_checks import check_index_keys, check_indexing
from attnctl.kernels.triton.device_checks import check_device
from attnctl.kernels.triton.latent.call import dense_query
from attnctl.kernels.triton.latent.indexer import logits_launch
from attnctl.kernels.triton.latent.launch import run
from attnctl.kernels.triton.latent.pick import pick_launches
from attnctl.kernels.triton.latent.scatter_rows import scatter_rows
from attnctl.ops.indexer import Indexing, key_planes
from attnctl.ops.packed_rows import GROUP, quantize_groups
from attnctl.runtime import Metadata

INSTEAD = "CPU_MLA_SPARSE"


class TritonIndexer:
    """The indexer's half of MlaSparseRuntime."""

    name = ""

    def write_index(
        self, key: Tensor, index_cache: Tensor, metadata: Metadata, params: Indexing
    ) -> None:
        check_device(self.name, key, instead=INSTEAD)
        metadata = check_index_keys(self.name, key, index_cache, metadata, params)
        values, scales = quantize_groups(key, GROUP, params.ue8m0)
        keys, key_scales = key_planes(index_cache)
        scatter_rows(values, keys, metadata.slot_mapping)
        scatter_rows(scales, key_scales, metadata.slot_mapping)

    def index_logits(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
    ) -> Tensor:
        """[T, max_seq_len] float32, -inf where a query token does not see the context token."""
        check_device(self.name, query, instead=INSTEAD)
        metadata = check_indexing(self.name, query, weights, index_cache, metadata, params)
        shape = (query.shape[0], metadata.max_seq_len)
        logits = torch.full(shape, -torch.inf, dtype=torch.float32, device=query.device)
        if logits.numel():
            query = dense_query(query)
            run(logits_launch(query, weights, index_cache, metadata, params, logits))
        return logits

    def select_tokens(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        out: Tensor | None = None,
    ) -> Tensor:
        check_device(self.name, query, instead=INSTEAD)
        metadata = check_indexing(self.name, query, weights, index_cache, metadata, params, out)
        if out is None:
            shape = (query.shape[0], params.topk)
            out = torch.full(shape, -1, dtype=torch.int32, device=query.device)
        # the pick looks at visible columns only, so that the others may hold anything
        shape = (query.shape[0], metadata.max_seq_len)
        logits = torch.empty(shape, dtype=torch.float32, device=query.device)
        if logits.numel():
            query = dense_query(query)
            run(logits_launch(query, weights, index_cache, metadata, params, logits))
            for launch in pick_launches(logits, metadata, params.topk, out):
                run(launch)
        return out
