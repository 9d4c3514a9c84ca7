"""CPU_MLA_SPARSE's runtime: C++ kernels built on first use, or torch where there is no compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnctl.kernels.cpu.built_runtime import Built
from attnctl.kernels.latent.checks import check_cpu
from attnctl.kernels.latent.sparse import SparseLatent
from attnctl.kernels.latent.states_checks import check_index_keys, check_indexing
from attnctl.ops.indexer import Indexing, write_index_keys
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

if TYPE_CHECKING:
    from attnctl.findings import Finding
    from attnctl.kernels.cpu.latent import IndexerKernels, LatentKernels
    from attnctl.probe.host import Host


class CpuMlaSparse(Built["tuple[LatentKernels, IndexerKernels]"], SparseLatent):
    """MlaSparseRuntime on the processor. Kernels are built, or found built, at the first call."""

    name = "CPU_MLA_SPARSE"

    def __init__(self, host: Host | None = None) -> None:
        self._host = host

    def _check_device(self, tensor: Tensor) -> None:
        check_cpu(self.name, tensor)

    def _sparse(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        slots: Tensor,
        params: Latent,
        out: Tensor,
        lse: Tensor | None,
    ) -> None:
        if lse is None:
            lse = query.new_empty(query.shape[:2], dtype=torch.float32)
        live = slice(int(metadata.query_start_loc[-1]))
        latent, _ = self._open()
        latent.sparse(query[live], cache, slots[live], params, out[live], lse[live])

    def write_index(
        self, key: Tensor, index_cache: Tensor, metadata: Metadata, params: Indexing
    ) -> None:
        metadata = check_index_keys(self.name, key, index_cache, metadata, params)
        write_index_keys(key, index_cache, metadata.slot_mapping, params)

    def index_logits(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
    ) -> Tensor:
        metadata = check_indexing(self.name, query, weights, index_cache, metadata, params)
        longest = max([0, *metadata.seq_lens.tolist()])
        out = weights.new_full((query.shape[0], longest), -torch.inf, dtype=torch.float32)
        _, indexer = self._open()
        indexer.logits(query, weights, index_cache, metadata, params, out)
        return out

    def select_tokens(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        out: Tensor | None = None,
    ) -> Tensor:
        metadata = check_indexing(self.name, query, weights, index_cache, metadata, params, out)
        if out is None:
            out = weights.new_full((query.shape[0], params.topk), -1, dtype=torch.int32)
        _, indexer = self._open()
        indexer.select(query, weights, index_cache, metadata, params, out)
        return out

    def _build(self, host: Host) -> tuple[tuple[LatentKernels, IndexerKernels], Finding]:
        from attnctl.kernels.cpu.latent import open_indexer, open_latent

        (latent, finding), (indexer, other) = open_latent(host), open_indexer(host)
        return (latent, indexer), other if finding.met else finding


RUNTIME = CpuMlaSparse()
