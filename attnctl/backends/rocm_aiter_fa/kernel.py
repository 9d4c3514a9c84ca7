"""ROCM_AITER_FA's runtime: AITER's batch prefill over the packed cache as pages of one token.

AITER's function takes a list of the rows that each sequence holds, which is built once for a batch
and shared by its layers; decode is a prefill of one token.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch import Tensor

from attnctl.exits import InputError
from attnctl.kernels.libraries import loaded
from attnctl.kernels.paged.chunks import unchunked
from attnctl.kernels.paged.flash import window
from attnctl.kernels.paged.packed_cache import PackedCache, per_head, refuse, views
from attnctl.kernels.row_lists import row_lists
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata


class AiterAttention(PackedCache):
    """PagedRuntime on aiter.mha_batch_prefill_func."""

    name = "ROCM_AITER_FA"

    def __init__(self, load: Callable[[str], Any] = import_module) -> None:
        self._load = load
        self._function: Callable[..., Any] | None = None
        self._listed: tuple[object, ...] = ()

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """[T, H, D] in the query's dtype. InputError: what AITER does not take."""
        metadata = self._checked_call(query, cache, metadata, params, out)
        tokens, heads, width = query.shape
        if tokens == 0 or metadata.max_query_len == 0:
            return query.new_empty(tokens, heads, width) if out is None else out
        self._refuse(cache, params)
        flat, mask, starts, rows = self._rows(metadata, params, tokens, cache.shape[1])
        keys, values = (part.flatten(0, 1) for part in views(cache, width))
        found = self._open()(
            query,
            keys,
            values,
            flat.query_start_loc,
            starts,
            rows,
            flat.max_query_len,
            flat.max_seq_len,
            softmax_scale=mask.scale,
            logits_soft_cap=mask.softcap or 0.0,
            causal=mask.causal,
            window_size=window(mask),
            alibi_slopes=per_head(mask.alibi_slopes),
        )
        return self._settle(out, found, metadata)

    def _refuse(self, cache: Tensor, params: Paged) -> None:
        refuse(
            self.name,
            params,
            sinks="AITER's batch prefill has no sinks; try ROCM_AITER_UNIFIED_ATTN",
            prefix_ranges="AITER's batch prefill has no bidirectional ranges; try TRITON_ATTN",
        )
        if cache.element_size() == 1:
            raise InputError(
                f"{self.name}: AITER's batch prefill takes no scales of an FP8 cache; "
                "try ROCM_AITER_UNIFIED_ATTN"
            )
        if cache.stride(0) != cache.shape[1] * cache.stride(1):
            raise InputError(
                f"{self.name}: AITER's batch prefill wants tokens one stride apart, pages too; "
                "take the cache as cache_shape gives it, (N, P, Hk, D + Dv), contiguous"
            )

    def _rows(
        self, metadata: Metadata, params: Paged, tokens: int, size: int
    ) -> tuple[Metadata, Paged, Tensor, Tensor]:
        """The batch without chunks, and the rows of the cache that its sequences hold."""
        if self._listed and self._listed[0] is metadata and self._listed[1] == params.chunk:
            flat, starts, rows = self._listed[2:]
            _, mask = unchunked(self.name, metadata, params, 0, size)
            return flat, mask, starts, rows  # type: ignore[return-value]
        flat, mask = unchunked(self.name, metadata, params, tokens, size)
        starts, rows = row_lists(flat, size)
        self._listed = (metadata, params.chunk, flat, starts, rows)
        return flat, mask, starts, rows

    def _open(self) -> Callable[..., Any]:
        if self._function is None:
            self._function = loaded(
                self.name, "AITER", self._load, "aiter", attribute="mha_batch_prefill_func"
            )
        return self._function


RUNTIME = AiterAttention()
