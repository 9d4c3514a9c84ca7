"""ROCM_AITER_MLA_SPARSE's runtime: AITER's decoding kernel over the rows that each query names.

In bfloat16 and rows of 512 + 64. Other calls, all where AITER cannot be imported, and the indexer
run on the bundled kernels.
"""

from __future__ import annotations

from importlib import import_module

from torch import Tensor

from attnctl.kernels.latent.adapter import SparseAdapter, State
from attnctl.kernels.latent.aiter import AiterLatent
from attnctl.kernels.latent.tokens import one_stride
from attnctl.kernels.libraries import Load
from attnctl.kernels.row_lists import picked_lists
from attnctl.ops.mla import Latent


class AiterMlaSparse(SparseAdapter):
    """MlaSparseRuntime on AITER."""

    name = "ROCM_AITER_MLA_SPARSE"
    block_multiple = 1
    packed = False

    def __init__(self, load: Load = import_module) -> None:
        super().__init__(load)
        self._aiter = AiterLatent(load)

    def _takes(self, query: Tensor, cache: Tensor, params: Latent, lse: bool) -> bool:
        return self._aiter.takes(query, cache, params, lse)

    def _library(
        self, query: Tensor, cache: Tensor, slots: Tensor, count: Tensor, params: Latent, lse: bool
    ) -> State:
        starts, listed = picked_lists(slots, count)
        rows = one_stride(self.name, cache)
        return self._aiter.decode(query, rows, starts, listed, params, lse)


RUNTIME = AiterMlaSparse()
