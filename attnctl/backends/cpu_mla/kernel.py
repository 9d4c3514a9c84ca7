"""CPU_MLA's runtime: vectorised torch in float32, on any processor for which torch is built."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.latent_checks import check_cpu
from attnctl.kernels.latent_dense import DenseLatent
from attnctl.kernels.latent_torch import absorbed, uncompressed
from attnctl.ops.merge_states import merge_attn_states
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata


class CpuMla(DenseLatent):
    """MlaRuntime on the processor."""

    name = "CPU_MLA"
    _attend = staticmethod(uncompressed)

    def _check_device(self, tensor: Tensor) -> None:
        check_cpu(self.name, tensor)

    def _absorbed(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        out: Tensor,
        lse: Tensor | None,
    ) -> None:
        if lse is None:
            lse = torch.empty(query.shape[:2])
        absorbed(query, cache, metadata, params, out, lse)

    def _weights(self, weight: Tensor) -> Tensor:
        return weight.float()

    @staticmethod
    def _merge(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
        return merge_attn_states(out_a, lse_a, out_b, lse_b, dtype=torch.float32)

    def merge_states(
        self,
        out_a: Tensor,
        lse_a: Tensor,
        out_b: Tensor,
        lse_b: Tensor,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        merged, top = self._merge(out_a, lse_a, out_b, lse_b)
        if out is None:
            out = torch.empty_like(out_a)
        if lse is None:
            lse = torch.empty_like(top)
        return out.copy_(merged), lse.copy_(top)


RUNTIME = CpuMla()
