"""FLASHINFER_MLA_SPARSE's runtime: FlashInfer's sparse decoding for Blackwell, the cache in place.

It takes rows of 512 + 64 and of 512, with the slots of a query in front of its list. What it does
not take and the indexer run on the bundled kernels.
"""

from __future__ import annotations

from importlib import import_module

import torch
from torch import Tensor

from attnctl.kernels.latent.adapter import SparseAdapter, State
from attnctl.kernels.latent.flashinfer import FlashInferLatent, computes
from attnctl.kernels.latent.tokens import one_stride
from attnctl.kernels.libraries import Load
from attnctl.kernels.row_lists import packed_first
from attnctl.ops.mla import Latent

LIST_MULTIPLE = 128
"""Of what the places of a query's list are made a multiple."""
PAGE = 32
"""What its pages of a sparse cache may be: slots count tokens, whatever the page."""


class FlashInferMlaSparse(SparseAdapter):
    """MlaSparseRuntime on FlashInfer."""

    name = "FLASHINFER_MLA_SPARSE"
    list_multiple = LIST_MULTIPLE
    block_multiple = PAGE
    packed = False

    def __init__(self, load: Load = import_module) -> None:
        super().__init__(load)
        self._flashinfer = FlashInferLatent(self.name, load)

    def query_dtype(self, query: Tensor, cache: Tensor) -> torch.dtype:
        """What a query is rounded to."""
        return cache.dtype if cache.dtype is torch.float8_e4m3fn else query.dtype

    def _takes(self, query: Tensor, cache: Tensor, params: Latent, lse: bool) -> bool:
        widths = (params.kv_lora_rank, query.shape[2] - params.kv_lora_rank)
        fits = query.shape[1] <= 128 and widths in ((512, 64), (512, 0))
        return fits and computes(query, cache)

    def _library(
        self, query: Tensor, cache: Tensor, slots: Tensor, count: Tensor, params: Latent, lse: bool
    ) -> State:
        named, count = packed_first(slots), count.clamp(min=1)
        pages = one_stride(self.name, cache).unflatten(0, (-1, PAGE))
        places = named.shape[1]
        rest = {"sparse_mla_top_k": places}
        if query.shape[2] == params.kv_lora_rank:
            # rows without rope have a kernel of their own, which wants the lengths here
            rest["sparse_mla_top_k_lens"] = count
        return self._flashinfer.decode(
            query, pages, named[:, None], count, places, params, lse, **rest
        )


RUNTIME = FlashInferMlaSparse()
