"""ROCM_AITER_MLA's runtime: AITER's decoding kernel over the latent cache as pages of one token.

It decodes one token a sequence, in bfloat16 and rows of 512 + 64. Other calls, and all where AITER
cannot be imported, run on the bundled kernels.
"""

from __future__ import annotations

from importlib import import_module

from torch import Tensor

from attnctl.kernels.latent.adapter import DenseAdapter, State
from attnctl.kernels.latent.aiter import AiterLatent
from attnctl.kernels.latent.tokens import each_token, one_stride
from attnctl.kernels.libraries import Load
from attnctl.kernels.row_lists import row_lists
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata


class AiterMla(DenseAdapter):
    """MlaRuntime on AITER."""

    name = "ROCM_AITER_MLA"
    block_multiple = 1

    def __init__(self, load: Load = import_module) -> None:
        super().__init__(load)
        self._aiter = AiterLatent(load)
        self._listed: tuple[Metadata, tuple[int, int], tuple[Tensor, Tensor]] | None = None

    def _takes(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, lse: bool
    ) -> bool:
        return metadata.max_query_len == 1 and self._aiter.takes(query, cache, params, lse)

    def _library(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, lse: bool
    ) -> State:
        starts, listed = self._lists(metadata, query.shape[0], cache.shape[1])
        rows = one_stride(self.name, cache)
        return self._aiter.decode(query, rows, starts, listed, params, lse)

    def _lists(self, metadata: Metadata, tokens: int, page: int) -> tuple[Tensor, Tensor]:
        """The rows of each query token, which the layers of a batch share."""
        held = self._listed
        if held is None or held[0] is not metadata or held[1] != (tokens, page):
            lists = row_lists(each_token(metadata, tokens), page)
            held = self._listed = (metadata, (tokens, page), lists)
        return held[2]


RUNTIME = AiterMla()
