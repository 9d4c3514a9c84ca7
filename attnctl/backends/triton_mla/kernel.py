"""TRITON_MLA's runtime: the bundled Triton kernels of latent attention, any widths."""

from __future__ import annotations

from torch import Tensor

from attnctl.kernels.latent_prefill import prefill
from attnctl.kernels.latent_rows import check_latent, encode_rows, latent_cache_shape
from attnctl.kernels.triton.latent_call import decode_launches, dense_query
from attnctl.kernels.triton.latent_launch import run
from attnctl.kernels.triton.merge_states import merge_states
from attnctl.kernels.triton.mla_prefill import prefill_attend
from attnctl.kernels.triton.scatter_rows import scatter_rows
from attnctl.latent_runtime import packed_batch
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata


class TritonMla:
    """MlaRuntime on every GPU for which Triton compiles."""

    build_metadata = staticmethod(packed_batch)
    merge_states = staticmethod(merge_states)

    def get_name(self) -> str:
        return "TRITON_MLA"

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
        rows = encode_rows(latent, rope, cache, params)
        scatter_rows(rows, cache, metadata.slot_mapping)

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
            out = query.new_empty(tokens, heads, params.kv_lora_rank)
        if tokens and metadata.seq_lens.shape[0]:
            query = dense_query(query)
            for launch in decode_launches(query, cache, metadata, params, out, lse):
                run(launch)
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
        if out is None:
            out = query.new_empty(query.shape[0], query.shape[1], w_uv.shape[1])
        if not metadata.seq_lens.shape[0]:
            return out
        found, top = prefill(
            query, cache, metadata, params, (w_uk, w_uv), chunk, prefill_attend, merge_states
        )
        out[: found.shape[0]] = found
        if lse is not None:
            lse[: top.shape[0]] = top
        return out


RUNTIME = TritonMla()
