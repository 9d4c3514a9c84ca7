"""Paged attention at workload sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.layer import Layer
from attnctl.ops.paged import Paged, paged_attention
from attnctl.ops.paged_inputs import KV_SCALES
from attnctl.ops.paged_trial import STORAGE
from attnctl.tune.measure.attended import AttendedBatch
from attnctl.tune.measure.lengths import Lengths, fill, lay_out, normal, sub_batch
from attnctl.tune.settings import Work


class PagedBatch(AttendedBatch):
    """K and V side by side in pages [N, P, Hk, D + Dv], whichever of them lies outermost."""

    def __init__(
        self,
        work: Work,
        lengths: Lengths,
        device: torch.device,
        order: tuple[int, ...] | None = None,
    ) -> None:
        layer = work.layer
        heads, kv_heads = layer.heads or 1, layer.kv_heads or 1
        self.width, self.out_width = layer.head_size or 0, layer.head_size_v or 0
        self.lengths, self.device = lengths, device
        dtype = getattr(torch, layer.dtype)
        self.places, pages = lay_out(lengths, work.page, device)
        self.cache = _cache(
            (pages, work.page, kv_heads, self.width + self.out_width), _stored(layer), device, order
        )
        self.query = normal((lengths.tokens, heads, self.width), dtype, device)
        self.params = _params(layer, self.cache, device)
        self._specified: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    def _expected(self, runtime: Any) -> tuple[Tensor, Tensor]:
        asked = getattr(runtime, "query_dtype", None)
        return self._reference(self.query.dtype if asked is None else asked(self.query, self.cache))

    def _call(self, runtime: Any, copy: int, out: Tensor) -> Callable[[], Any]:
        metadata = self.metadata(runtime, self.places[copy])

        def call() -> Any:
            return runtime.forward(self.query, self.cache, metadata, self.params, out)

        return call

    def _reference(self, narrow: torch.dtype) -> tuple[Tensor, Tensor]:
        """The checked rows in float64, and in the query's dtype with the kernel's own rounding."""
        if narrow not in self._specified:
            rows, table, starts, lens = sub_batch(self.lengths, self.places[0], self.device)
            query = self.query[rows]
            rounded = query.to(narrow).to(query.dtype)
            keys, values = self.cache[..., : self.width], self.cache[..., self.width :]
            exact, same = (
                paged_attention(one, keys, values, table, starts, lens, self.params, dtype=dtype)
                for one, dtype in ((query, torch.float64), (rounded, query.dtype))
            )
            self._specified[narrow] = (exact, same)
        return self._specified[narrow]


def _stored(layer: Layer) -> torch.dtype:
    name = layer.dtype if layer.kv_cache_dtype == "auto" else layer.kv_cache_dtype
    if name == "int8_per_token_head":
        return torch.int8
    found = STORAGE.get(name) or getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"tune: caches of {name} are not laid out; tune without --kv-cache-dtype")
    return found


def _cache(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    order: tuple[int, ...] | None,
) -> Tensor:
    if order is None:
        return normal(shape, dtype, device)
    whole = torch.empty([shape[place] for place in order], dtype=dtype, device=device)
    return fill(whole).permute([order.index(place) for place in range(len(shape))])


def _params(layer: Layer, cache: Tensor, device: torch.device) -> Paged:
    group, heads = layer.group, layer.heads or 1
    generator = torch.Generator().manual_seed(5)
    k_scale: float | Tensor = 1.0
    v_scale: float | Tensor = 1.0
    if cache.dtype is torch.int8:
        k_scale, v_scale = (torch.full(cache.shape[:3], 0.02, device=device) for _ in "kv")
    elif cache.dtype.itemsize == 1:
        k_scale, v_scale = KV_SCALES
    slopes = 2.0 ** -(8.0 * torch.arange(1, heads + 1) / heads)
    return Paged(
        scale=(layer.head_size or 1) ** -0.5,
        causal=group.causal,
        window=_left(layer),
        window_right=group.window_right,
        chunk=group.chunk,
        softcap=group.softcap,
        sinks=torch.randn(heads, generator=generator).to(device) if group.sinks else None,
        alibi_slopes=slopes.to(device) if group.alibi else None,
        k_scale=k_scale,
        v_scale=v_scale,
    )


def _left(layer: Layer) -> int | None:
    """Tokens to the left that a query sees, itself included."""
    group = layer.group
    if group.window is None or group.kind == "chunked":
        return None
    return group.window - (group.window_right or 0)
