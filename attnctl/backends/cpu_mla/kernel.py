"""CPU_MLA's runtime: C++ kernels built on first use, or torch where there is no compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnctl.kernels.cpu.built_runtime import Built
from attnctl.kernels.latent.checks import check_cpu
from attnctl.kernels.latent.dense import DenseLatent
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

if TYPE_CHECKING:
    from attnctl.findings import Finding
    from attnctl.kernels.cpu.latent import LatentKernels
    from attnctl.probe.host import Host


class CpuMla(Built["LatentKernels"], DenseLatent):
    """MlaRuntime on the processor. The kernels are built, or found built, at the first call."""

    name = "CPU_MLA"

    def __init__(self, host: Host | None = None) -> None:
        self._host = host

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
            lse = query.new_empty(query.shape[:2], dtype=torch.float32)
        self._open().absorbed(query, cache, metadata, params, out, lse)

    def _weights(self, weight: Tensor) -> Tensor:
        return weight.float()

    def _attend(
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
        places = (key_start_loc, metadata, scale)
        return self._open().uncompressed(
            query, keys, values, *places, causal=causal, max_keys=max_keys
        )

    def _merge(
        self,
        out_a: Tensor,
        lse_a: Tensor,
        out_b: Tensor,
        lse_b: Tensor,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        out, lse = out_a if out is None else out, lse_a if lse is None else lse
        self._open().merge(out_a, lse_a, out_b, lse_b, out, lse)
        return out, lse

    def _build(self, host: Host) -> tuple[LatentKernels, Finding]:
        from attnctl.kernels.cpu.latent import open_latent

        return open_latent(host)


RUNTIME = CpuMla()
