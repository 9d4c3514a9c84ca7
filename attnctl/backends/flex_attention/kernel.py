"""FLEX_ATTENTION's runtime: torch's flex_attention, compiled once per shape family."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._dynamo import config as dynamo_config
from torch._dynamo.exc import BackendCompilerFailed
from torch.fx.experimental import _config as fx_config

from attnctl.exits import InputError
from attnctl.kernels.flex.attend import Batch, attend, batch_of, fused, mark_sizes, unfused
from attnctl.kernels.paged.packed_cache import PackedCache, refuse
from attnctl.kernels.plain_torch import plain_torch
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata
from attnctl.tune.settings import Limits, Setting, Work, check_knobs, refuse_kernel

UNFUSED_SCORES = 1 << 22
"""Scores a head up to which a processor computes unfused: they cost less than the minute for which
the C++ kernel compiles."""


PLACES = ("auto", "cache", "packed")


class FlexAttention(PackedCache):
    """PagedRuntime on torch's flex_attention.

    compiled: True or False; None compiles on a GPU, and on a processor for batches of more than
    UNFUSED_SCORES scores a head. place: "cache" reads the keys and values where
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
        self._batches: list[tuple[Metadata, Tensor | None, object, Batch]] = []
        self._families: set[tuple[Any, ...]] = set()
        self._failed: set[tuple[Any, ...]] = set()

    def settings(self, work: Work, limits: Limits) -> tuple[Setting, ...]:
        """Where keys and values are read from; a processor always copies them."""
        if limits.shared_memory_bytes == 0:
            return (Setting(),)
        return Setting(), Setting(knobs={"place": "packed"})

    def with_knobs(self, knobs: Mapping[str, Any], kernel: str = "") -> FlexAttention:
        """This runtime with another place. InputError: it has no such knob, place or kernel."""
        refuse_kernel(self.name, kernel)
        place = check_knobs(self.name, knobs, {"place": self._place}).get("place", self._place)
        if place not in PLACES:
            raise InputError(f"{self.name}: place {place!r} is none of {', '.join(PLACES)}")
        return FlexAttention(self._compiled, str(place))

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """[T, H, Dv] in the query's dtype. InputError: sinks, or a cache that does not fit."""
        _check(params)
        metadata = self._checked_call(query, cache, metadata, params, out)
        if query.is_meta:
            raise InputError(f"{self.name}: its tensors lie on meta, where they hold nothing")
        tokens, heads, width = query.shape
        if out is None:
            out = query.new_zeros(tokens, heads, cache.shape[3] - width)
        if tokens == 0 or metadata.seq_lens.shape[0] == 0 or metadata.max_query_len == 0:
            return out
        with plain_torch(query.device):
            # scales are no part of what is compiled: a layer's own would compile it anew
            if params.k_scale != 1.0:
                query = query * params.k_scale
            batch = self._batch(cache, metadata, params, tokens, query.dtype)
            function = self._function(batch, cache)
            found = attend(query, cache, batch, params, function)
            if params.v_scale != 1.0:
                found = found * params.v_scale
            written = batch.items.written[:, None, None]
            return torch.where(written, found, out, out=out)

    def _batch(
        self, cache: Tensor, metadata: Metadata, params: Paged, tokens: int, dtype: torch.dtype
    ) -> Batch:
        """The batch cut up for this mask, as it was for the layer before where that is the same."""
        ranges = params.prefix_ranges
        mask = (params.causal, params.window, params.window_right, params.chunk)
        layout = (cache.shape[0], cache.shape[1], cache.stride(), cache.dtype, dtype, tokens)
        for of, was, key, batch in self._batches:
            if of is metadata and was is ranges and key == (mask, layout):
                return batch
        batch = batch_of(cache, metadata, params, tokens, dtype, place=self._place)
        # a hybrid model's layers take turns between few masks of one batch
        kept = [one for one in self._batches if one[0] is metadata][-7:]
        self._batches = [*kept, (metadata, ranges, (mask, layout), batch)]
        return batch

    def _function(self, batch: Batch, cache: Tensor) -> Callable[..., Any]:
        compiled = self._compiled
        if compiled is None:
            scores = batch.spans[..., 0].numel() * batch.logical.shape[1] * cache.shape[1]
            compiled = cache.device.type != "cpu" or scores > UNFUSED_SCORES
        return self._fused if compiled else unfused

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Any:
        if self._run is None:
            self._run = torch.compile(fused, fullgraph=True, dynamic=True)
        # of a view the tracer asks its base's shape and strides too: data is a view of nothing
        query, key, value = query.data, key.data, value.data
        # whatever the traced program depends on beyond lengths: another is traced anew, as below
        strides = (query.stride()[1:], key.stride()[1:], value.stride()[1:])
        shapes = (query.shape[1:], key.shape[1::2], value.shape[3], strides)
        features = (rest[3] is None, rest[4] is None, *rest[5:])
        mode = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        family = (query.dtype, query.device.type, shapes, features, mode)
        if family in self._families:
            return self._run(query, key, value, *rest)
        if family in self._failed:
            return unfused(query, key, value, *rest)
        mark_sizes(query, key, value, *rest)
        # two lengths that happen to be equal must not be taken for one, a program may hold models
        # of many shapes, and the Triton template does not compile where the page size is a symbol,
        # nor where a stride is one, as those become that differ from the program's before
        settings = {
            "recompile_limit": 1024,
            "specialize_int": True,
            "specialize_float": True,
            "automatic_dynamic_shapes": False,
        }
        with fx_config.patch(use_duck_shape=False), dynamo_config.patch(settings):
            try:
                found = self._run(query, key, value, *rest)
            except BackendCompilerFailed as error:
                if self._compiled or query.device.type != "cpu":
                    raise
                # no compiler, or C++ that does not compile: slow is better than nothing
                warnings.warn(
                    f"FLEX_ATTENTION computes unfused, slowly: torch.compile failed: "
                    f"{' '.join(str(error).splitlines()[:2])}. Try CPU_ATTN",
                    stacklevel=4,
                )
                self._failed.add(family)
                return unfused(query, key, value, *rest)
        self._families.add(family)
        return found


def _check(params: Paged) -> None:
    refuse("FLEX_ATTENTION", params)
    if params.sinks is not None:
        raise InputError(
            "FLEX_ATTENTION: attention sinks are not in flex_attention; try TRITON_ATTN or CPU_ATTN"
        )


RUNTIME = FlexAttention()
