"""FLASHINFER's runtime: FlashInfer's paged wrappers over the packed cache, read in place.

FlashInfer plans a batch on the host, so the first layer of a batch waits for the device; the layers
after it, with the same metadata and mask, run what was planned.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.kernels.libraries import loaded
from attnctl.kernels.paged.chunks import unchunked
from attnctl.kernels.paged.flash import summed, window
from attnctl.kernels.paged.packed_cache import PackedCache, per_head, refuse, views
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata

WORKSPACE_BYTES = 128 << 20
"""FlashInfer's own advice for its float workspace."""


class _Planned(msgspec.Struct, frozen=True):
    metadata: Metadata
    wrapper: Any
    tokens: int


class FlashInfer(PackedCache):
    """PagedRuntime on FlashInfer. Not for two threads at once: a wrapper holds one plan."""

    name = "FLASHINFER"

    def __init__(self, load: Callable[[str], Any] = import_module) -> None:
        self._load = load
        self._workspaces: dict[torch.device, Tensor] = {}
        self._wrappers: dict[tuple[object, ...], Any] = {}
        self._planned: dict[tuple[object, ...], _Planned] = {}

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """[T, H, Dv] in the query's dtype. InputError: a mask that FlashInfer has not."""
        metadata = self._checked_call(query, cache, metadata, params, out)
        tokens, heads, width = query.shape
        if out is None:
            out = query.new_empty(tokens, heads, cache.shape[3] - width)
        if tokens == 0 or metadata.max_query_len == 0:
            return out
        key = _family(query, cache, params)
        found = self._planned.get(key)
        if found is None or found.metadata is not metadata:
            found = self._plan(key, query, cache, metadata, params)
        live = found.tokens
        rest: dict[str, Any] = {} if params.sinks is None else {"sinks": per_head(params.sinks)}
        if cache.element_size() == 1:
            rest.update(k_scale=params.k_scale, v_scale=params.v_scale)
        found.wrapper.run(query[:live], views(cache, width), out=out[:live], **rest)
        return out

    def _plan(
        self,
        key: tuple[object, ...],
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
    ) -> _Planned:
        refuse(
            self.name,
            params,
            alibi_slopes="FlashInfer's ALiBi takes no slopes; try TRITON_ATTN",
            prefix_ranges="bidirectional ranges are not in FlashInfer's masks; try TRITON_ATTN",
            window_right="windows are one-sided in FlashInfer; try TRITON_ATTN",
        )
        size, width = cache.shape[1], query.shape[2]
        flat, mask = unchunked(self.name, metadata, params, query.shape[0], size)
        live = int(flat.query_start_loc[-1])
        single = flat.max_query_len == 1 and live == flat.seq_lens.shape[0]
        wrapper = self._wrapper((single, *key), query.device, params)
        starts, indices, last = paged_lists(flat, size)
        shape = (query.shape[1], cache.shape[2], width, size)
        common = {
            "sm_scale": mask.scale,
            "window_left": window(mask)[0],
            "logits_soft_cap": mask.softcap,
            "q_data_type": query.dtype,
            "kv_data_type": cache.dtype,
            "block_tables": flat.block_table,
        }
        if single:
            wrapper.plan(starts, indices, last, *shape, **common)
        else:
            rows = flat.query_start_loc
            wrapper.plan(rows, starts, indices, last, *shape, causal=mask.causal, **common)
        planned = _Planned(metadata, wrapper, live)
        self._planned[key] = planned
        return planned

    def _wrapper(self, kind: tuple[object, ...], device: torch.device, params: Paged) -> Any:
        """The wrapper of a shape and mask: its plan's buffers are used again by the next batch."""
        if kind in self._wrappers:
            return self._wrappers[kind]
        workspace = self._workspaces.get(device)
        if workspace is None:
            workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
            self._workspaces[device] = workspace
        # the one of FlashInfer's kernels that has sinks
        backend = "auto" if params.sinks is None else "trtllm-gen"
        module = loaded(self.name, "FlashInfer", self._load, "flashinfer")
        if kind[0]:
            found = module.BatchDecodeWithPagedKVCacheWrapper(
                workspace, kv_layout="NHD", use_tensor_cores=True, backend=backend
            )
        else:
            found = module.BatchPrefillWithPagedKVCacheWrapper(
                workspace, kv_layout="NHD", backend=backend
            )
        self._wrappers[kind] = found
        return found


def paged_lists(metadata: Metadata, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """indptr [B + 1], page ids in order, and the tokens in each last page. Waits for the device."""
    counts = (metadata.seq_lens + size - 1) // size
    index = torch.arange(metadata.block_table.shape[1], device=counts.device)
    indices = metadata.block_table[index < counts[:, None]]
    last = metadata.seq_lens - (counts - 1) * size
    return summed(counts), indices.to(torch.int32), last.to(torch.int32)


def _family(query: Tensor, cache: Tensor, params: Paged) -> tuple[object, ...]:
    mask = (params.causal, params.window, params.window_right, params.chunk, params.softcap)
    odd = (params.sinks is None, params.alibi_slopes is None, params.prefix_ranges is None)
    shape = (query.shape[1:], cache.shape[1:], query.dtype, cache.dtype, query.device)
    return (shape, mask, odd, params.scale)


RUNTIME = FlashInfer()
