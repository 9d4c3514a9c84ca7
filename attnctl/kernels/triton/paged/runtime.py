"""The runtime of the bundled Triton kernels: TRITON_ATTN, TRITON_ATTN_DIFFKV and relations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnctl.kernels.paged.checks import check_write
from attnctl.kernels.paged.packed_cache import PackedCache, over_scales, views
from attnctl.kernels.triton.device_checks import check_device
from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.paged import Knobs, knobs_for, paged_attention, write_cache
from attnctl.kernels.triton.paged.knobs import changed, checked
from attnctl.kernels.triton.relaunch import Relaunches
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata
from attnctl.tune.settings import refuse_kernel

if TYPE_CHECKING:
    from attnctl.tune.settings import Limits, Setting, Work

NO_CHANGES: Mapping[str, Any] = MappingProxyType({})


class TritonAttention(PackedCache):
    """PagedRuntime on any GPU that Triton compiles for, and in its interpreter without one."""

    def __init__(
        self,
        name: str,
        block_multiple: int = 16,
        knobs: Knobs | None = None,
        changes: Mapping[str, Any] = NO_CHANGES,
    ) -> None:
        self.name = name
        self.block_multiple = block_multiple
        self._knobs = knobs
        self._changes = changes
        self._of_device: dict[torch.device, Knobs] = {}
        self._kept = Relaunches()

    def settings(self, work: Work, limits: Limits) -> tuple[Setting, ...]:
        """Every launch that fits the device, the default first, each once."""
        from attnctl.tune.measure.paged_settings import paged_settings

        return paged_settings(work, limits, self._knobs, self.block_multiple)

    def with_knobs(self, knobs: Mapping[str, Any], kernel: str = "") -> TritonAttention:
        """This runtime with some knobs changed. InputError: it has no such knob or kernel."""
        refuse_kernel(self.name, kernel)
        changes = checked(self.name, knobs)
        return TritonAttention(self.name, self.block_multiple, self._knobs, changes)

    def _knobs_on(self, device: torch.device) -> Knobs | None:
        if not self._changes:
            return self._knobs
        found = self._of_device.get(device)
        if found is None:
            base = self._knobs or knobs_for(device_of(device).arch)
            found = self._of_device[device] = changed(base, self._changes)
        return found

    def write_cache(
        self, key: Tensor, value: Tensor, cache: Tensor, metadata: Metadata, params: Paged
    ) -> None:
        """One launch; slots of -1 and rows past the slots are left alone."""
        check_device(self.name, cache)
        checked = self._checked(metadata)
        check_write(self.name, key, value, cache, checked, params)
        key, value = over_scales(key, value, cache, params)
        write_cache(
            key,
            value,
            *views(cache, key.shape[2]),
            checked.slot_mapping,
            params.k_scale,
            params.v_scale,
            self._kept,
        )

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """[T, H, Dv]. Launches by shapes alone and waits for nothing: a CUDA graph can hold it."""
        check_device(self.name, query)
        checked = self._checked_call(query, cache, metadata, params, out)
        return paged_attention(
            query,
            *views(cache, query.shape[2]),
            checked.block_table,
            checked.query_start_loc,
            checked.seq_lens,
            params,
            max_query_len=checked.max_query_len,
            max_seq_len=checked.max_seq_len,
            out=out,
            knobs=self._knobs_on(query.device),
            kept=self._kept,
        )
