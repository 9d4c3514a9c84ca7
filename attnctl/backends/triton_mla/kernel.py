"""TRITON_MLA's runtime: the bundled Triton kernels of latent attention, any widths."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from attnctl.kernels.latent.dense import DenseLatent
from attnctl.kernels.triton.device_checks import check_device
from attnctl.kernels.triton.latent.call import decode_launches, dense_query
from attnctl.kernels.triton.latent.knobs import USUAL, LatentKnobs, latent_knobs
from attnctl.kernels.triton.latent.launch import run
from attnctl.kernels.triton.latent.merge_states import merge_states
from attnctl.kernels.triton.latent.prefill_call import prefill_attend
from attnctl.kernels.triton.latent.scatter_rows import scatter_rows
from attnctl.kernels.triton.relaunch import Relaunches
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

if TYPE_CHECKING:
    from attnctl.tune.settings import Limits, Setting, Work


class TritonMla(DenseLatent):
    """MlaRuntime on every GPU for which Triton compiles."""

    name = "TRITON_MLA"
    _store = staticmethod(scatter_rows)
    _merge = staticmethod(merge_states)

    def __init__(self, knobs: LatentKnobs = USUAL) -> None:
        super().__init__()
        self._knobs = knobs
        self._kept = Relaunches()
        self._attend = partial(prefill_attend, kept=self._kept)

    def settings(self, work: Work, limits: Limits) -> tuple[Setting, ...]:
        """Every launch that fits the device, the default first."""
        from attnctl.tune.measure.latent_settings import latent_settings

        return latent_settings(work, limits)

    def with_knobs(self, knobs: Mapping[str, Any], kernel: str = "") -> TritonMla:
        """This runtime with some knobs changed. InputError: it has no such knob or kernel."""
        return TritonMla(latent_knobs(self.name, knobs, kernel))

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
        given = (query, cache, metadata, params, out, lse)
        device = self._kept.place(query)
        if device is None:
            for launch in decode_launches(*given, knobs=self._knobs):
                run(launch)
            return
        batch = (metadata.block_table, metadata.query_start_loc, metadata.seq_lens)
        whole = (query, cache, out, lse, *batch)
        bounds = ("absorbed", device, params, metadata.max_query_len, metadata.max_seq_len)
        self._kept.run(
            bounds,
            whole,
            lambda scratch: decode_launches(*given, knobs=self._knobs, scratch=scratch),
        )


RUNTIME = TritonMla()
