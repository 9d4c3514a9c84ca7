"""The runtime of the FlashAttention backends: which version, and what none of them takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.kernels.batch_checks import CheckedMetadata
from attnctl.kernels.libraries import Load
from attnctl.kernels.paged.chunks import unchunked
from attnctl.kernels.paged.flash import Flash, FlashMetadata, attend, find, summed
from attnctl.kernels.paged.packed_cache import PackedCache, refuse, views
from attnctl.layer import Layer, Options, layer_of
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.ops.paged import Paged
from attnctl.requirements.flash_versions import suitable_versions
from attnctl.runtime import Metadata
from attnctl.tune.settings import Limits, Setting, Work, check_knobs, refuse_kernel

KERNELS = ("fa2", "fa3", "fa4")
Capability = Callable[[torch.device], tuple[int, int]]


class FlashAttention(PackedCache):
    """PagedRuntime on FlashAttention. The version is that of the rules, where it can be loaded.

    load: import_module, or what stands for it. capability: a device's compute capability. version:
    this one alone.
    """

    def __init__(
        self,
        name: str,
        load: Load = import_module,
        capability: Capability = torch.cuda.get_device_capability,
        version: int | None = None,
    ) -> None:
        self.name = name
        self._load = load
        self._capability = capability
        self._version = version
        self._found: dict[tuple[object, ...], Flash] = {}

    def settings(self, work: Work, limits: Limits) -> tuple[Setting, ...]:
        """The version of the rules, and as rivals the others that can be loaded."""
        group, layer = work.layer.group, work.layer
        width, width_v = layer.head_size or 0, layer.head_size_v or 0
        demands = _layer(layer.heads or 1, width, width_v, group.sinks, group.alibi)
        loaded = []
        for version in self._able(torch.device("cuda"), demands):
            with contextlib.suppress(InputError):
                loaded.append(find(self.name, [version], self._load, group.sinks).version)
        return (Setting(), *(Setting(kernel=f"fa{version}") for version in loaded[1:]))

    def with_knobs(self, knobs: Mapping[str, Any], kernel: str = "") -> FlashAttention:
        """This runtime on the version of a kernel's name. InputError: it has no such kernel."""
        check_knobs(self.name, knobs, {})
        refuse_kernel(self.name, kernel, KERNELS)
        version = int(kernel[2:]) if kernel else None
        return FlashAttention(self.name, self._load, self._capability, version)

    def lack(self, sinks: bool = False) -> str:
        """Why the version that was named cannot be loaded here; "" where it can, or none was."""
        if self._version is None:
            return ""
        try:
            find(self.name, [self._version], self._load, sinks)
        except InputError as error:
            return str(error)
        return ""

    def _check_batch(self, metadata: Metadata) -> Metadata:
        """The batch, and where each context ends among all.

        On the processor, where nothing but a stand-in runs, it stays what the next call knows.
        """
        found = super()._check_batch(metadata)
        if isinstance(found, CheckedMetadata):
            return found
        kept = {field: getattr(found, field) for field in Metadata.__struct_fields__}
        return FlashMetadata(**kept, context_start_loc=summed(found.seq_lens))

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """[T, H, Dv] in the query's dtype. InputError: what the loaded version does not take, or
        tensors that do not fit together."""
        metadata = self._checked_call(query, cache, metadata, params, out)
        tokens, heads, width = query.shape
        width_v = cache.shape[3] - width
        if tokens == 0 or metadata.max_query_len == 0:
            return query.new_empty(tokens, heads, width_v) if out is None else out
        self._refuse(params, cache)
        sinks, alibi = params.sinks is not None, params.alibi_slopes is not None
        flash = self._flash(query, cache, sinks, alibi)
        flat, mask = unchunked(self.name, metadata, params, tokens, cache.shape[1])
        found = attend(self.name, flash, query, views(cache, width), flat, mask, out)
        return self._settle(out, found, metadata)

    def query_dtype(self, query: Tensor, cache: Tensor) -> torch.dtype:
        """What a query is rounded to: FlashAttention 3 multiplies FP8 keys with FP8 queries."""
        fp8 = cache.element_size() == 1 and self._flash(query, cache, sinks=False).version == 3
        return cache.dtype if fp8 else query.dtype

    def _refuse(self, params: Paged, cache: Tensor) -> None:
        if cache.dtype == torch.float8_e5m2:
            raise InputError(
                f"{self.name}: no FlashAttention reads an fp8_e5m2 cache; take fp8_e4m3"
            )
        refuse(
            self.name,
            params,
            prefix_ranges="bidirectional ranges are not in FlashAttention's mask; try TRITON_ATTN",
        )
        if params.alibi_slopes is not None and not params.causal:
            raise InputError(
                f"{self.name}: FlashAttention's ALiBi falls off on both sides of a token, this "
                "layer's rises to the right of it; try TRITON_ATTN"
            )

    def _flash(self, query: Tensor, cache: Tensor, sinks: bool, alibi: bool = False) -> Flash:
        _, heads, width = query.shape
        width_v = cache.shape[3] - width
        key = (query.device, heads, width, width_v, sinks, alibi)
        found = self._found.get(key)
        if found is None:
            layer = _layer(heads, width, width_v, sinks, alibi)
            able = self._able(query.device, layer)
            found = self._found[key] = find(self.name, able, self._load, sinks)
        return found

    def _able(self, device: torch.device, layer: Layer) -> list[int]:
        """The versions that take this layer on this device, the rules' own first."""
        try:
            capability = self._capability(device)
        except (AssertionError, RuntimeError, ValueError) as error:
            raise InputError(
                f"{self.name}: its tensors must lie on a CUDA GPU; they lie on {device}"
            ) from error
        versions = suitable_versions(capability, layer)
        allowed = (2, 3, 4) if layer.head_size == layer.head_size_v else (3, 4)
        return [one for one in versions if one in allowed and self._version in (None, one)]


def _layer(heads: int, width: int, width_v: int, sinks: bool, alibi: bool) -> Layer:
    """The demands on which the rule of versions hinges."""
    group = LayerGroup(
        kind="full",
        layers=(0,),
        num_heads=heads,
        num_kv_heads=heads,
        head_size=width,
        head_size_v=None if width_v == width else width_v,
        sinks=sinks,
        alibi=alibi,
    )
    return layer_of(ModelSpec(model_type="call", groups=(group,)), group, Options())
