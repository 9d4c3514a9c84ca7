"""FLASHMLA_SPARSE's runtime: FlashMLA's sparse kernels over the latent cache, read in place.

Plain caches go to its prefill kernel whatever the phase, packed FP8 rows (656 bytes) to its
decoding kernel, every query token a sequence of its own. Both take rows of 512 + 64 in bfloat16
queries, plain ones of 512 too; the rest and the indexer run on the bundled kernels.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.latent.adapter import SparseAdapter, State
from attnctl.kernels.latent.flashmla import FlashMlaModule
from attnctl.kernels.latent.rows import PACKED
from attnctl.kernels.latent.tokens import least, more_heads, one_stride
from attnctl.kernels.libraries import Load
from attnctl.ops.mla import Latent

HEADS = (64, 128)
"""Query heads that its kernels are built for; others are filled up with zeros."""
LIST_MULTIPLE = 128
"""Of what the places of a query's list must be a multiple (two tiles of 64)."""


class FlashMlaSparse(SparseAdapter):
    """MlaSparseRuntime on FlashMLA."""

    name = "FLASHMLA_SPARSE"
    list_multiple = LIST_MULTIPLE
    block_multiple = 64

    def __init__(self, load: Load = import_module) -> None:
        super().__init__(load)
        self._flashmla = FlashMlaModule(self.name, load)
        self._planned: tuple[tuple[object, ...], Any] | None = None

    def cache_shape(
        self,
        num_blocks: int,
        block_size: int,
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        kv_cache_dtype: str = "auto",
    ) -> tuple[int, ...]:
        """(N, P, L + R), or (N, P, bytes) for an FP8 cache, which is packed whatever its name."""
        kind = PACKED if kv_cache_dtype.startswith("fp8") else kv_cache_dtype
        return super().cache_shape(num_blocks, block_size, kv_lora_rank, qk_rope_head_dim, kind)

    def _takes(self, query: Tensor, cache: Tensor, params: Latent, lse: bool) -> bool:
        rank, (_, heads, columns) = params.kv_lora_rank, query.shape
        ropes = {torch.bfloat16: (0, 64), torch.uint8: (64,)}.get(cache.dtype, ())
        if query.dtype is not torch.bfloat16 or rank != 512 or columns - rank not in ropes:
            return False
        if least(HEADS, heads) is None:
            return False
        self._flashmla.open()
        return True

    def _library(
        self, query: Tensor, cache: Tensor, slots: Tensor, count: Tensor, params: Latent, lse: bool
    ) -> State:
        heads = query.shape[1]
        width = least(HEADS, heads)
        assert width is not None
        query = more_heads(query, width)
        module = self._flashmla.open()
        if cache.dtype is torch.uint8:
            found, top = module.flash_mla_with_kvcache(
                q=query[:, None],
                k_cache=cache[:, :, None],
                block_table=None,
                cache_seqlens=None,
                head_dim_v=params.kv_lora_rank,
                tile_scheduler_metadata=self._plan(module, query, cache, slots),
                softmax_scale=params.scale,
                is_fp8_kvcache=True,
                indices=slots[:, None],
            )
            found, top = found[:, 0], top[:, :, 0]
        else:
            rows = one_stride(self.name, cache)
            found, _, top = module.flash_mla_sparse_fwd(
                query.contiguous(), rows[:, None], slots[:, None], params.scale, params.kv_lora_rank
            )
        return found[:, :heads], top[:, :heads]

    def _plan(self, module: Any, query: Tensor, cache: Tensor, named: Tensor) -> Any:
        """FlashMLA's schedule, which hangs on shapes alone: batches of one shape share it."""
        shape = (query.shape, cache.shape[1], named.shape, query.device)
        if self._planned is None or self._planned[0] != shape:
            self._planned = (shape, module.get_mla_metadata()[0])
        return self._planned[1]


RUNTIME = FlashMlaSparse()
