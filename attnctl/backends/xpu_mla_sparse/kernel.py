"""XPU_MLA_SPARSE's runtime: vLLM's Intel kernel over the latent cache, else the bundled one.

Intel's kernel takes bfloat16 rows of 512 + 64 and of 512. Other calls, all where it cannot be
imported, and the indexer run on the bundled kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.latent.adapter import SparseAdapter, State
from attnctl.kernels.latent.tokens import one_stride
from attnctl.kernels.libraries import Load
from attnctl.ops.mla import Latent

MODULE = "vllm_xpu_kernels.flash_mla_interface"


class XpuMlaSparse(SparseAdapter):
    """MlaSparseRuntime on vLLM's Intel kernels where they can be imported."""

    name = "XPU_MLA_SPARSE"
    block_multiple = 64

    def __init__(self, load: Load = import_module) -> None:
        super().__init__(load)
        self._asked = False
        self._function: Callable[..., Any] | None = None

    def _takes(self, query: Tensor, cache: Tensor, params: Latent, lse: bool) -> bool:
        plain = query.dtype is torch.bfloat16 and cache.dtype is torch.bfloat16
        widths = (params.kv_lora_rank, query.shape[2]) in ((512, 576), (512, 512))
        return plain and widths and self._open() is not None

    def _library(
        self, query: Tensor, cache: Tensor, slots: Tensor, count: Tensor, params: Latent, lse: bool
    ) -> State:
        function = self._open()
        assert function is not None
        found = function(
            query,
            one_stride(self.name, cache)[:, None],
            slots[:, None],
            params.scale,
            d_v=params.kv_lora_rank,
            return_softmax_lse=lse,
        )
        return (found[0], found[2]) if lse else (found, None)

    def _open(self) -> Callable[..., Any] | None:
        if not self._asked:
            self._asked = True
            try:
                self._function = self._load(MODULE).flash_mla_sparse_fwd
            except (ImportError, OSError):
                self._function = None
        return self._function


RUNTIME = XpuMlaSparse()
