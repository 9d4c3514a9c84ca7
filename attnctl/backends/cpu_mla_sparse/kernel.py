"""CPU_MLA_SPARSE's runtime: vectorised torch in float32, on any processor that torch runs on."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.indexer_torch import TorchIndexer
from attnctl.kernels.latent_rows import check_latent, encode_rows, latent_cache_shape, store_rows
from attnctl.kernels.latent_torch import sparse
from attnctl.latent_runtime import packed_batch
from attnctl.ops.indexer import index_cache_shape
from attnctl.ops.mla import Latent
from attnctl.ops.mla_sparse import check_slots
from attnctl.runtime import Metadata


class CpuMlaSparse(TorchIndexer):
    """MlaSparseRuntime on the processor."""

    build_metadata = staticmethod(packed_batch)
    index_cache_shape = staticmethod(index_cache_shape)

    def get_name(self) -> str:
        return "CPU_MLA_SPARSE"

    def is_ssm(self) -> bool:
        return False

    def cache_shape(
        self,
        num_blocks: int,
        block_size: int,
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        kv_cache_dtype: str = "auto",
    ) -> tuple[int, ...]:
        widths = (kv_lora_rank, qk_rope_head_dim)
        return latent_cache_shape(
            self.get_name(), num_blocks, block_size, *widths, kv_cache_dtype=kv_cache_dtype
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
        slots: Tensor,
        params: Latent,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        *,
        check: bool = False,
    ) -> Tensor:
        check_latent(self.get_name(), query, cache, params.kv_lora_rank)
        if check:
            check_slots(slots, cache)
        tokens, heads, _ = query.shape
        if out is None:
            out = query.new_zeros(tokens, heads, params.kv_lora_rank)
        if lse is None:
            lse = torch.empty(tokens, heads)
        live = slice(int(metadata.query_start_loc[-1]))
        sparse(query[live], cache, slots[live], params, out[live], lse[live])
        return out


RUNTIME = CpuMlaSparse()
