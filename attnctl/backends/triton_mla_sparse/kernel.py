"""TRITON_MLA_SPARSE's runtime: the bundled Triton kernels, the indexer included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from attnctl.kernels.latent.sparse import SparseLatent
from attnctl.kernels.triton.device_checks import check_device
from attnctl.kernels.triton.latent.call import dense_query, sparse_launches
from attnctl.kernels.triton.latent.indexer_call import TritonIndexer
from attnctl.kernels.triton.latent.knobs import USUAL, LatentKnobs, latent_knobs
from attnctl.kernels.triton.latent.launch import run
from attnctl.kernels.triton.latent.scatter_rows import scatter_rows
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

if TYPE_CHECKING:
    from attnctl.tune.settings import Limits, Setting, Work


class TritonMlaSparse(SparseLatent, TritonIndexer):
    """MlaSparseRuntime on every GPU for which Triton compiles."""

    name = "TRITON_MLA_SPARSE"
    _store = staticmethod(scatter_rows)

    def __init__(self, knobs: LatentKnobs = USUAL) -> None:
        super().__init__()
        self._knobs = knobs

    def settings(self, work: Work, limits: Limits) -> tuple[Setting, ...]:
        """Every launch that fits the device, the default first."""
        from attnctl.tune.measure.latent_settings import latent_settings

        return latent_settings(work, limits)

    def with_knobs(self, knobs: Mapping[str, Any], kernel: str = "") -> TritonMlaSparse:
        """This runtime with some knobs changed. InputError: it has no such knob or kernel."""
        return TritonMlaSparse(latent_knobs(self.name, knobs, kernel))

    def _check_device(self, tensor: Tensor) -> None:
        check_device(self.name, tensor, instead="CPU_MLA_SPARSE")

    def _sparse(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        slots: Tensor,
        params: Latent,
        out: Tensor,
        lse: Tensor | None,
    ) -> None:
        query, slots = dense_query(query), dense_query(slots)
        for launch in sparse_launches(
            query, cache, slots, metadata, params, out, lse, knobs=self._knobs
        ):
            run(launch)


RUNTIME = TritonMlaSparse()
