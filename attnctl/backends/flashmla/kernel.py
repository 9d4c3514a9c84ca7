"""FLASHMLA's runtime: FlashMLA's dense decoding kernel over the latent cache, read in place.

It takes rows of 512 + 64 in pages of 64 tokens. FP8 caches need vLLM's extension, which multiplies
FP8 keys with FP8 queries. What it does not take runs on the bundled kernels.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.latent.adapter import DenseAdapter, State
from attnctl.kernels.latent.flashmla import FlashMlaModule
from attnctl.kernels.latent.tokens import each_token, split_pages
from attnctl.kernels.libraries import Load
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

FP8_MODULE = "vllm.v1.attention.ops.flashmla"
PAGE = 64


class FlashMla(DenseAdapter):
    """MlaRuntime on FlashMLA. Every query token is decoded as a sequence of its own."""

    name = "FLASHMLA"
    block_multiple = PAGE

    def __init__(self, load: Load = import_module) -> None:
        super().__init__(load)
        self._flashmla = FlashMlaModule(self.name, load)
        self._asked, self._extension = False, None
        self._planned: tuple[Metadata, tuple[int, ...], Metadata, Any] | None = None

    def query_dtype(self, query: Tensor, cache: Tensor) -> torch.dtype:
        """What a query is rounded to."""
        return cache.dtype if cache.element_size() == 1 and self._fp8() else query.dtype

    def _takes(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, lse: bool
    ) -> bool:
        if (params.kv_lora_rank, query.shape[2]) != (512, 576):
            return False
        if cache.dtype is torch.float8_e4m3fn:
            return self._fp8() is not None
        if cache.dtype is not query.dtype or query.element_size() != 2:
            return False
        self._flashmla.open()
        return True

    def _library(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, lse: bool
    ) -> State:
        flat, plan = self._plan(query, cache, metadata)
        pages, table = split_pages(self.name, cache, flat.block_table, (PAGE,))
        common = {
            "k_cache": pages[:, :, None],
            "block_table": table,
            "cache_seqlens": flat.seq_lens,
            "head_dim_v": params.kv_lora_rank,
            "softmax_scale": params.scale,
            "causal": True,
        }
        fp8 = self._fp8() if cache.element_size() == 1 else None
        if fp8 is None:
            module = self._flashmla.open()
            found, top = module.flash_mla_with_kvcache(
                q=query[:, None], tile_scheduler_metadata=plan, **common
            )
        else:
            ones = torch.ones(1, dtype=torch.float32, device=query.device)
            found, top = fp8.flash_mla_with_kvcache_fp8(
                q=narrowed(query, cache.dtype)[:, None],
                tile_scheduler_metadata=plan[0],
                num_splits=plan[1],
                descale_q=ones,
                descale_k=ones,
                **common,
            )
        return found[:, 0], top[:, :, 0]

    def _plan(self, query: Tensor, cache: Tensor, metadata: Metadata) -> tuple[Metadata, Any]:
        """The batch by tokens and FlashMLA's schedule of it, which its layers share."""
        tokens, heads, _ = query.shape
        shape = (tokens, heads, cache.shape[1], cache.element_size())
        held = self._planned
        if held is None or held[0] is not metadata or held[1] != shape:
            flat = each_token(metadata, tokens)
            fp8 = self._fp8() if cache.element_size() == 1 else None
            if fp8 is None:
                plan, _ = self._flashmla.open().get_mla_metadata()
            else:
                plan = fp8.get_mla_metadata_dense_fp8(flat.seq_lens, heads, 1)
            held = self._planned = (metadata, shape, flat, plan)
        return held[2], held[3]

    def _fp8(self) -> Any:
        """vLLM's dense FP8 kernels, None without them."""
        if not self._asked:
            self._asked = True
            try:
                self._extension = self._load(FP8_MODULE)
            except (ImportError, OSError):
                self._extension = None
        return self._extension


def narrowed(query: Tensor, dtype: torch.dtype) -> Tensor:
    """The query in an FP8 format, what is beyond its largest value as that."""
    most = torch.finfo(dtype).max
    return query.float().clamp(-most, most).to(dtype)


RUNTIME = FlashMla()
