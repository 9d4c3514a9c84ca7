"""ROCM_ATTN's runtime: the Triton kernel of vLLM's ROCm build over the packed cache.

vLLM's compiled decode kernel assumes a layout of its own without strides; its Triton kernel takes
strides, so it reads the packed cache in place, decode included.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.kernels.libraries import loaded
from attnctl.kernels.paged.chunks import unchunked
from attnctl.kernels.paged.packed_cache import PackedCache, per_head, refuse, views
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata

MODULE = "vllm.v1.attention.ops.prefix_prefill"

FP8_NAMES = {torch.float8_e4m3fn: "fp8_e4m3", torch.float8_e5m2: "fp8_e5m2"}


class RocmAttention(PackedCache):
    """PagedRuntime on vLLM's prefix-prefill kernel."""

    name = "ROCM_ATTN"

    def __init__(self, load: Callable[[str], Any] = import_module) -> None:
        self._load = load
        self._function: Callable[..., None] | None = None
        self._scales: dict[tuple[torch.device, float], Tensor] = {}

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """[T, H, D] in the query's dtype. InputError: what the kernel does not take."""
        metadata = self._checked_call(query, cache, metadata, params, out)
        tokens, heads, width = query.shape
        if out is None:
            out = query.new_empty(tokens, heads, width)
        if tokens == 0 or metadata.max_query_len == 0:
            return out
        self._refuse(params)
        flat, mask = unchunked(self.name, metadata, params, tokens, cache.shape[1])
        keys, values = views(cache, width)
        key, value = (None, None)
        if mask.alibi_slopes is not None:
            key, value = newest(keys, metadata, tokens), newest(values, metadata, tokens)
        inner = 16 // cache.element_size()
        self._open()(
            query,
            key,
            value,
            out,
            FP8_NAMES.get(cache.dtype, "auto"),
            keys.unflatten(3, (width // inner, inner)).permute(0, 2, 3, 1, 4),
            values.permute(0, 2, 3, 1),
            flat.block_table,
            flat.query_start_loc,
            flat.seq_lens,
            flat.max_seq_len,
            flat.max_query_len,
            self._scale(query.device, mask.k_scale),
            self._scale(query.device, mask.v_scale),
            alibi_slopes=per_head(mask.alibi_slopes),
            sliding_window=mask.window,
            sm_scale=mask.scale,
            causal=mask.causal,
        )
        return out

    def _refuse(self, params: Paged) -> None:
        refuse(
            self.name,
            params,
            softcap="vLLM's ROCm kernel has no softcap; try TRITON_ATTN",
            sinks="vLLM's ROCm kernel is not asked for sinks here; try TRITON_ATTN",
            prefix_ranges="vLLM's ROCm kernel has no bidirectional ranges; try TRITON_ATTN",
            window_right="vLLM's ROCm kernel has one-sided windows; try TRITON_ATTN",
        )
        if params.alibi_slopes is not None and (params.window or not params.causal):
            raise InputError(
                f"{self.name}: vLLM's ROCm kernel has ALiBi for causal attention without a window; "
                "try TRITON_ATTN"
            )

    def _open(self) -> Callable[..., None]:
        if self._function is None:
            self._function = loaded(
                self.name, "vLLM", self._load, MODULE, attribute="context_attention_fwd"
            )
        return self._function

    def _scale(self, device: torch.device, scale: Any) -> Tensor:
        found = self._scales.get((device, scale))
        if found is None:
            found = torch.tensor([scale], dtype=torch.float32, device=device)
            self._scales[device, scale] = found
        return found


def newest(part: Tensor, metadata: Metadata, tokens: int) -> Tensor:
    """This batch's own rows of K or V, out of the cache: [T, Hk, D]."""
    slots = metadata.slot_mapping[:tokens].clamp(min=0)
    size = part.shape[1]
    return part[slots // size, slots % size]


RUNTIME = RocmAttention()
