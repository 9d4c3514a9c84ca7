"""TRITON_MLA's runtime: the bundled Triton kernels of latent attention, any widths."""

from __future__ import annotations

from torch import Tensor

from attnctl.kernels.latent_dense import DenseLatent
from attnctl.kernels.triton.latent_call import decode_launches, dense_query
from attnctl.kernels.triton.latent_launch import run
from attnctl.kernels.triton.merge_states import merge_states
from attnctl.kernels.triton.mla_prefill import prefill_attend
from attnctl.kernels.triton.runtime import check_device
from attnctl.kernels.triton.scatter_rows import scatter_rows
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata


class TritonMla(DenseLatent):
    """MlaRuntime on every GPU for which Triton compiles."""

    name = "TRITON_MLA"
    _store = staticmethod(scatter_rows)
    _attend = staticmethod(prefill_attend)
    _merge = merge_states = staticmethod(merge_states)

    def _check_device(self, tensor: Tensor) -> None:
        check_device(self.name, tensor, instead="CPU_MLA")

    def _absorbed(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        out: Tensor,
        lse: Tensor | None,
    ) -> None:
        query = dense_query(query)
        for launch in decode_launches(query, cache, metadata, params, out, lse):
            run(launch)


RUNTIME = TritonMla()
