"""FLASHINFER_MLA's runtime: FlashInfer's decoding for Blackwell over the latent cache, in place.

It takes rows of 512 + 64 and 256 + 64 in pages of 32 or 64 tokens. What it does not take runs on
the bundled kernels.
"""

from __future__ import annotations

from importlib import import_module

import torch
from torch import Tensor

from attnctl.kernels.latent.adapter import DenseAdapter, State
from attnctl.kernels.latent.flashinfer import FlashInferLatent, computes
from attnctl.kernels.latent.tokens import each_token, split_pages
from attnctl.kernels.libraries import Load
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

TABLE_TOKENS = 128
"""Tokens of which a row of the block table must hold a multiple."""


class FlashInferMla(DenseAdapter):
    """MlaRuntime on FlashInfer. Every query token is decoded as a sequence of its own."""

    name = "FLASHINFER_MLA"
    block_multiple = 32
    _planned: tuple[Metadata, int, Metadata] | None = None

    def __init__(self, load: Load = import_module) -> None:
        super().__init__(load)
        self._flashinfer = FlashInferLatent(self.name, load)

    def query_dtype(self, query: Tensor, cache: Tensor) -> torch.dtype:
        """What a query is rounded to."""
        return cache.dtype if cache.dtype is torch.float8_e4m3fn else query.dtype

    def _takes(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, lse: bool
    ) -> bool:
        widths = (params.kv_lora_rank, query.shape[2] - params.kv_lora_rank)
        fits = query.shape[1] <= 128 and widths in ((512, 64), (256, 64))
        return fits and computes(query, cache)

    def _library(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, lse: bool
    ) -> State:
        flat = self._plan(metadata, query.shape[0])
        pages, table = split_pages(self.name, cache, flat.block_table, (32, 64))
        per_row = TABLE_TOKENS // pages.shape[1]
        missing = -table.shape[1] % per_row
        if missing:
            table = torch.nn.functional.pad(table, (0, missing))
        return self._flashinfer.decode(
            query, pages, table, flat.seq_lens, metadata.max_seq_len, params, lse
        )

    def _plan(self, metadata: Metadata, tokens: int) -> Metadata:
        """The batch by tokens, which its layers share."""
        held = self._planned
        if held is None or held[0] is not metadata or held[1] != tokens:
            held = self._planned = (metadata, tokens, each_token(metadata, tokens))
        return held[2]


RUNTIME = FlashInferMla()
