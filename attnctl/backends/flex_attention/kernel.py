"""FLEX_ATTENTION's runtime: torch's flex_attention, compiled once per shape family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._dynamo import config as dynamo_config
from torch.fx.experimental import _config as fx_config

from attnctl.exits import InputError
from attnctl.kernels.flex.attend import attend, batch_of, fused, mark_sizes, unfused
from attnctl.kernels.packed_cache import PackedCache
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata

UNFUSED_SCORES = 1 << 24
"""Scores up to which a processor computes unfused: at 64 MB they cost less than the minute for
which the C++ kernel compiles."""


class FlexAttention(PackedCache):
    """PagedRuntime on torch's flex_attention.

    compiled: True or False; None compiles on a GPU, and on a processor for batches whose scores
    would take more than UNFUSED_SCORES elements. place: "cache" reads the keys and values where
    they are, "packed" copies the batch's pages, "auto" the first on a GPU where the cache allows.

    One kernel is compiled for each of: head counts, widths, dtype, page size, scale, softcap or
    none, ALiBi or none, and few or many query tokens a sequence; no other for other lengths,
    windows, chunks or ranges.
    """

    name = "FLEX_ATTENTION"

    def __init__(self, compiled: bool | None = None, place: str = "auto") -> None:
        self._compiled = compiled
        self._place = place
        self._run: Callable[..., Any] | None = None
        self._families: set[tuple[Any, ...]] = set()

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """[T, H, Dv] in the query's dtype. InputError: sinks, or a cache that does not fit."""
        tokens, heads, width = query.shape
        _check(heads, cache, params)
        if out is None:
            out = query.new_zeros(tokens, heads, cache.shape[3] - width)
        if tokens == 0 or metadata.seq_lens.shape[0] == 0 or metadata.max_query_len == 0:
            return out
        size = cache.shape[1]
        batch = batch_of(cache, width, metadata, params, tokens, query.dtype, place=self._place)
        found = attend(query, batch, params, size, self._function(query, batch.pages.key))
        written = batch.items.written[:, None, None]
        return out.copy_(torch.where(written, found, out))

    def _function(self, query: Tensor, key: Tensor) -> Callable[..., Any]:
        compiled = self._compiled
        if compiled is None:
            scores = query.shape[0] * query.shape[1] * key.shape[2]
            compiled = query.device.type != "cpu" or scores > UNFUSED_SCORES
        return self._fused if compiled else unfused

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Any:
        if self._run is None:
            self._run = torch.compile(fused, fullgraph=True, dynamic=True)
        shapes = (query.shape[1:], key.shape[1::2], value.shape[3])
        features = (rest[3] is None, rest[4] is None, *rest[5:])
        family = (query.dtype, query.device.type, shapes, features)
        if family in self._families:
            return self._run(query, key, value, *rest)
        mark_sizes(query, key, value, *rest)
        # two lengths that happen to be equal must not be taken for one, and a program may hold
        # models of many shapes
        with fx_config.patch(use_duck_shape=False), dynamo_config.patch(recompile_limit=1024):
            found = self._run(query, key, value, *rest)
        self._families.add(family)
        return found


def _check(heads: int, cache: Tensor, params: Paged) -> None:
    if params.sinks is not None:
        raise InputError(
            "FLEX_ATTENTION: attention sinks are not in flex_attention; try TRITON_ATTN or CPU_ATTN"
        )
    if heads % cache.shape[2]:
        raise InputError(
            f"FLEX_ATTENTION: {heads} query heads do not divide by the cache's {cache.shape[2]} KV "
            "heads; pass the cache as cache_shape gives it: (N, P, Hk, D + Dv)"
        )


RUNTIME = FlexAttention()
