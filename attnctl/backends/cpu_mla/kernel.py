"""CPU_MLA's runtime: vectorised torch in float32, on any processor for which torch is built."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.latent_prefill import prefill
from attnctl.kernels.latent_rows import check_latent, encode_rows, latent_cache_shape, store_rows
from attnctl.kernels.latent_torch import absorbed, uncompressed
from attnctl.latent_runtime import packed_batch
from attnctl.ops.merge_states import merge_attn_states
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata


class CpuMla:
    """MlaRuntime on the processor."""

    build_metadata = staticmethod(packed_batch)

    def get_name(self) -> str:
        return "CPU_MLA"

    def is_ssm(self) -> bool:
        return False

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
        absorbed(query, cache, metadata, params, out, lse)
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
        weights = (w_uk.float(), w_uv.float())
        found, top = prefill(
            query, cache, metadata, params, weights, chunk, uncompressed, _merge_float32
        )
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
        merged, top = _merge_float32(out_a, lse_a, out_b, lse_b)
        if out is None:
            out = torch.empty_like(out_a)
        if lse is None:
            lse = torch.empty_like(top)
        return out.copy_(merged), lse.copy_(top)


def _merge_float32(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor
) -> tuple[Tensor, Tensor]:
    return merge_attn_states(out_a, lse_a, out_b, lse_b, dtype=torch.float32)


RUNTIME = CpuMla()
