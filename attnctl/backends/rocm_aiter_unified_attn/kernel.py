"""ROCM_AITER_UNIFIED_ATTN's runtime: AITER's unified attention, the bundled kernel without it.

AITER's kernel is causal; encoder layers, two-sided windows and bidirectional ranges run on the
bundled one. Cache blocks are multiples of 16, of which it asks for 64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.kernels.paged.chunks import unchunked
from attnctl.kernels.paged.flash import window
from attnctl.kernels.paged.packed_cache import PackedCache, per_head, refuse, views
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata
from attnctl.tune.settings import Limits, Setting, Work, refuse_kernel

AITER_MODULE = "aiter.ops.triton.unified_attention"
BUNDLED = "triton"
NO_KNOBS: Mapping[str, Any] = MappingProxyType({})
BUNDLED_MODULE = "attnctl.kernels.triton.paged"


class UnifiedAttention(PackedCache):
    """PagedRuntime on AITER where it can be imported, on the bundled Triton kernel elsewhere."""

    name = "ROCM_AITER_UNIFIED_ATTN"

    def __init__(
        self,
        load: Callable[[str], Any] = import_module,
        knobs: Mapping[str, Any] = NO_KNOBS,
        bundled: bool = False,
    ) -> None:
        self._load = load
        self._knobs = knobs
        self._own = bundled
        self._tuned: Any = None
        self._aiter: Callable[..., None] | None = None
        self._asked = False
        self._scales: dict[tuple[torch.device, int, int, Any], Tensor] = {}

    def settings(self, work: Work, limits: Limits) -> tuple[Setting, ...]:
        """AITER's kernel where it is there, and every launch of the bundled one as its rival."""
        from attnctl.tune.measure.paged_settings import paged_settings

        own = paged_settings(work, limits)
        if self._open() is None:
            return own
        named = (msgspec.structs.replace(one, kernel=BUNDLED) for one in own)
        return (Setting(), *named)

    def with_knobs(self, knobs: Mapping[str, Any], kernel: str = "") -> UnifiedAttention:
        """This runtime with knobs of the bundled kernel. InputError: there is no such."""
        from attnctl.kernels.triton.paged.knobs import checked

        refuse_kernel(self.name, kernel, (BUNDLED,))
        return UnifiedAttention(self._load, checked(self.name, knobs), kernel == BUNDLED)

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """[T, H, Dv] in the query's dtype. InputError: scales per token, or a chunk that is no
        whole number of pages where AITER computes."""
        metadata = self._checked_call(query, cache, metadata, params, out)
        tokens, heads, width = query.shape
        if out is None:
            out = query.new_empty(tokens, heads, cache.shape[3] - width)
        if tokens == 0 or metadata.max_query_len == 0:
            return out
        aiter = None if self._own else self._open()
        if aiter is None or not _takes(params, cache.shape[1]):
            return self._bundled(query, cache, metadata, params, out)
        refuse(self.name, params)
        flat, mask = unchunked(self.name, metadata, params, tokens, cache.shape[1])
        keys, values = views(cache, width)
        shape = (flat.seq_lens.shape[0], cache.shape[2])
        aiter(
            q=query,
            k=keys,
            v=values,
            out=out,
            cu_seqlens_q=flat.query_start_loc,
            max_seqlen_q=flat.max_query_len,
            seqused_k=flat.seq_lens,
            max_seqlen_k=flat.max_seq_len,
            softmax_scale=mask.scale,
            causal=True,
            window_size=window(mask),
            block_table=flat.block_table,
            softcap=mask.softcap or 0.0,
            q_descale=None,
            k_descale=self._scale(query.device, shape, mask.k_scale),
            v_descale=self._scale(query.device, shape, mask.v_scale),
            alibi_slopes=per_head(mask.alibi_slopes),
            sinks=per_head(mask.sinks),
        )
        return out

    def _bundled(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Paged, out: Tensor
    ) -> Tensor:
        bundled = self._load(BUNDLED_MODULE)
        bundled.check_device(self.name, query)
        keys, values = views(cache, query.shape[2])
        found: Tensor = bundled.paged_attention(
            query,
            keys,
            values,
            metadata.block_table,
            metadata.query_start_loc,
            metadata.seq_lens,
            params,
            max_query_len=metadata.max_query_len,
            max_seq_len=metadata.max_seq_len,
            out=out,
            **self._bundled_knobs(query.device),
        )
        return found

    def _bundled_knobs(self, device: torch.device) -> dict[str, Any]:
        if not self._knobs:
            return {}
        if self._tuned is None:
            from attnctl.kernels.triton.device_facts import device_of
            from attnctl.kernels.triton.paged.knobs import changed
            from attnctl.kernels.triton.paged.plan import knobs_for

            self._tuned = changed(knobs_for(device_of(device).arch), self._knobs)
        return {"knobs": self._tuned}

    def _open(self) -> Callable[..., None] | None:
        if not self._asked:
            self._asked = True
            try:
                self._aiter = self._load(AITER_MODULE).unified_attention
            except ImportError:
                self._aiter = None
        return self._aiter

    def _scale(self, device: torch.device, shape: tuple[int, int], scale: Any) -> Tensor:
        key = (device, *shape, scale)
        if key not in self._scales:
            self._scales[key] = torch.full(shape, scale, dtype=torch.float32, device=device)
        return self._scales[key]


def _takes(params: Paged, size: int) -> bool:
    chunked = params.chunk is not None and params.chunk % size != 0
    return params.causal and params.prefix_ranges is None and not chunked


RUNTIME = UnifiedAttention()
