"""TRITON_MLA_SPARSE's runtime: the bundled Triton kernels, the indexer included."""

from __future__ import annotations

from torch import Tensor

from attnctl.kernels.latent_rows import check_latent, encode_rows, latent_cache_shape
from attnctl.kernels.triton.indexer_call import TritonIndexer
from attnctl.kernels.triton.latent_call import dense_query, sparse_launches
from attnctl.kernels.triton.latent_launch import run
from attnctl.kernels.triton.scatter_rows import scatter_rows
from attnctl.latent_runtime import packed_batch
from attnctl.ops.indexer import index_cache_shape
from attnctl.ops.mla import Latent
from attnctl.ops.mla_sparse import check_slots
from attnctl.runtime import Metadata


class TritonMlaSparse(TritonIndexer):
    """MlaSparseRuntime on every GPU for which Triton compiles."""

    build_metadata = staticmethod(packed_batch)
    index_cache_shape = staticmethod(index_cache_shape)

    def get_name(self) -> str:
        return "TRITON_MLA_SPARSE"

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
        rows = encode_rows(latent, rope, cache, params)
        scatter_rows(rows, cache, metadata.slot_mapping)

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
            out = query.new_empty(tokens, heads, params.kv_lora_rank)
        if tokens and metadata.seq_lens.shape[0]:
            query, slots = dense_query(query), dense_query(slots)
            for launch in sparse_launches(query, cache, slots, metadata, params, out, lse):
                run(launch)
        return out


RUNTIME = TritonMlaSparse()
