"""FLASH_ATTN_MLA's runtime: FlashAttention 3 on Hopper, vLLM's kernels on Intel.

FlashAttention 3 takes the rope part as queries and keys and the latent part as a second query
beside the values, both views of the cache. It has rope parts of 64 and latent parts of 256 or 512.
Where many rows of queries see a page it loads whole pages and multiplies what lies past a context
with zero, which is NaN where that is: it is then given pages of half a tile, which it cannot.
Intel's function takes the row as the key and its latent part as the value, one query token of a
sequence at a time. What neither takes runs on the bundled kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from msgspec.structs import replace
from torch import Tensor

from attnctl.kernels.latent.adapter import DenseAdapter, State
from attnctl.kernels.latent.tokens import split_pages
from attnctl.kernels.libraries import Load
from attnctl.kernels.paged.flash import Flash, find
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

XPU_MODULE = "vllm_xpu_kernels.flash_attn_interface"
FEW_ROWS = 64
"""Rows of queries (tokens times heads) up to which FlashAttention 3 masks what it loads."""
SMALL_PAGES = (32, 16)
"""Sizes that no tile of its keys (64, or 96 at latent parts of 256) divides."""


def _device_type(tensor: Tensor) -> str:
    return str(tensor.device.type)


class FlashAttnMla(DenseAdapter):
    """MlaRuntime on FlashAttention. place: the type of a tensor's device, or what stands for it."""

    name = "FLASH_ATTN_MLA"

    def __init__(
        self, load: Load = import_module, place: Callable[[Tensor], str] = _device_type
    ) -> None:
        super().__init__(load)
        self._place = place
        self._flash: Flash | None = None
        self._split: tuple[Metadata, int, Metadata] | None = None

    def _takes(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, lse: bool
    ) -> bool:
        rank, rope = params.kv_lora_rank, query.shape[2] - params.kv_lora_rank
        if cache.dtype is not query.dtype or query.element_size() != 2 or rope != 64:
            return False
        if self._place(query) == "xpu":
            return rank == 512 and metadata.max_query_len == 1
        return rank in (256, 512)

    def _library(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, lse: bool
    ) -> State:
        rank = params.kv_lora_rank
        if self._place(query) == "xpu":
            found = self._load(XPU_MODULE).flash_attn_varlen_func(
                query,
                cache[:, :, None],
                cache[:, :, None, :rank],
                causal=False,
                fa_version=2,
                **_batch(metadata, params, lse),
            )
        else:
            found = self._flash3(query, cache, metadata, params, lse)
        if not lse:
            return found, None
        return found[0], found[1].t()

    def _flash3(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, lse: bool
    ) -> Any:
        rank = params.kv_lora_rank
        if metadata.max_query_len * query.shape[1] > FEW_ROWS:
            cache, metadata = self._small(cache, metadata)
        latent, rope = cache[:, :, None, :rank], cache[:, :, None, rank:]
        flash = self._flash = self._flash or find(self.name, (3,), self._load)
        if flash.carried:
            return flash.function(
                query[..., rank:],
                rope,
                latent,
                q_v=query[..., :rank],
                causal=True,
                fa_version=3,
                **_batch(metadata, params, lse),
            )
        return flash.function(
            query[..., rank:],
            rope,
            latent,
            qv=query[..., :rank],
            cache_seqlens=metadata.seq_lens,
            page_table=metadata.block_table,
            cu_seqlens_q=metadata.query_start_loc,
            max_seqlen_q=metadata.max_query_len,
            softmax_scale=params.scale,
            causal=True,
            return_softmax_lse=lse,
        )

    def _small(self, cache: Tensor, metadata: Metadata) -> tuple[Tensor, Metadata]:
        """Cache and batch with small pages; the layers of a batch share its block table."""
        held, page = self._split, cache.shape[1]
        if held is None or held[0] is not metadata or held[1] != page:
            _, table = split_pages(self.name, cache, metadata.block_table, SMALL_PAGES)
            held = self._split = (metadata, page, replace(metadata, block_table=table))
        small, _ = split_pages(self.name, cache, metadata.block_table[:0], SMALL_PAGES)
        return small, held[2]


def _batch(metadata: Metadata, params: Latent, lse: bool) -> dict[str, Any]:
    """What vLLM's function and Intel's take by the same names."""
    return {
        "max_seqlen_q": metadata.max_query_len,
        "cu_seqlens_q": metadata.query_start_loc,
        "max_seqlen_k": metadata.max_seq_len,
        "seqused_k": metadata.seq_lens,
        "block_table": metadata.block_table,
        "softmax_scale": params.scale,
        "return_softmax_lse": lse,
    }


RUNTIME = FlashAttnMla()
