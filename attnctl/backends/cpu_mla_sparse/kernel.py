"""CPU_MLA_SPARSE's runtime: vectorised torch in float32, on any processor that torch runs on."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.indexer_torch import TorchIndexer
from attnctl.kernels.latent_checks import check_cpu
from attnctl.kernels.latent_sparse import SparseLatent
from attnctl.kernels.latent_torch import sparse
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata


class CpuMlaSparse(SparseLatent, TorchIndexer):
    """MlaSparseRuntime on the processor."""

    name = "CPU_MLA_SPARSE"

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
            lse = torch.empty(query.shape[:2])
        live = slice(int(metadata.query_start_loc[-1]))
        sparse(query[live], cache, slots[live], params, out[live], lse[live])


RUNTIME = CpuMlaSparse()
