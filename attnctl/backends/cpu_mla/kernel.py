"""CPU_MLA's runtime: C++ kernels built on first use, or torch where there is no compiler."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnctl.kernels.latent_prefill import prefill
from attnctl.kernels.latent_rows import check_latent, encode_rows, latent_cache_shape, store_rows
from attnctl.latent_runtime import packed_batch
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

if TYPE_CHECKING:
    from attnctl.findings import Finding
    from attnctl.kernels.cpu.latent import LatentKernels
    from attnctl.probe.host import Host


class CpuMla:
    """MlaRuntime on the processor. The kernels are built, or found built, at the first call."""

    build_metadata = staticmethod(packed_batch)

    def __init__(self, host: Host | None = None) -> None:
        self._host = host
        self._kernels: LatentKernels | None = None
        self._finding: Finding | None = None

    def get_name(self) -> str:
        return "CPU_MLA"

    def is_ssm(self) -> bool:
        return False

    def finding(self) -> Finding:
        """What computes: the compiler and flags of the C++ kernels, or why it is torch instead."""
        self._open()
        assert self._finding is not None
        return self._finding

    def cache_shape(
        self, num_blocks: int, block_size: int, kv_lora_rank: int, qk_rope_head_dim: int
    ) -> tuple[int, ...]:
        return latent_cache_shape(
            self.get_name(), num_blocks, block_size, kv_lora_rank, qk_rope_head_dim
        )

    def write_cache(
        self, latent: Tensor, rope: Tensor, cache: Tensor, metadata: Metadata, params: Latent
    ) -> None:
        store_rows(encode_rows(latent, rope, cache, params), cache, metadata.slot_mapping)

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> Tensor:
        check_latent(self.get_name(), query, cache, params.kv_lora_rank)
        tokens, heads, _ = query.shape
        if out is None:
            out = query.new_zeros(tokens, heads, params.kv_lora_rank)
        if lse is None:
            lse = torch.empty(tokens, heads)
        self._open().absorbed(query, cache, metadata, params, out, lse)
        return out

    def prefill(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        w_uk: Tensor,
        w_uv: Tensor,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        chunk: int = 0,
    ) -> Tensor:
        kernels, weights = self._open(), (w_uk.float(), w_uv.float())
        attend, merge = kernels.uncompressed, self._merge_into_first
        found, top = prefill(query, cache, metadata, params, weights, chunk, attend, merge)
        if out is None:
            out = query.new_zeros(query.shape[0], query.shape[1], w_uv.shape[1])
        out[: found.shape[0]] = found.to(out.dtype)
        if lse is not None:
            lse[: top.shape[0]] = top
        return out

    def merge_states(
        self,
        out_a: Tensor,
        lse_a: Tensor,
        out_b: Tensor,
        lse_b: Tensor,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        if out is None:
            out = torch.empty_like(out_a)
        if lse is None:
            lse = torch.empty_like(lse_a, dtype=torch.float32)
        self._open().merge(out_a, lse_a, out_b, lse_b, out, lse)
        return out, lse

    def _merge_into_first(
        self, out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor
    ) -> tuple[Tensor, Tensor]:
        self._open().merge(out_a, lse_a, out_b, lse_b, out_a, lse_a)
        return out_a, lse_a

    def _open(self) -> LatentKernels:
        if self._kernels is None:
            from attnctl.kernels.cpu.latent import open_latent, torch_warning
            from attnctl.probe.realhost import RealHost

            self._kernels, self._finding = open_latent(self._host or RealHost())
            if not self._finding.met:
                warnings.warn(torch_warning(self.get_name(), self._finding), stacklevel=3)
        return self._kernels


RUNTIME = CpuMla()
