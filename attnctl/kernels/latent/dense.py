"""The calls of dense latent attention, for every backend: checked, then handed to its kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.latent.cache import LatentCache
from attnctl.kernels.latent.checks import check_cache, check_out, check_query, check_weights
from attnctl.kernels.latent.prefill import Attend, Merge, Parts, parts_of, prefill
from attnctl.kernels.latent.states_checks import check_states
from attnctl.kernels.plain_torch import plain_torch
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata


class DenseLatent(LatentCache, ABC):
    """MlaRuntime but for `_absorbed` and what the uncompressed form is computed with."""

    _attend: Attend
    _merge: Merge
    _parts: tuple[Metadata, tuple[int, int, Any], Parts] | None = None

    @abstractmethod
    def _absorbed(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        out: Tensor,
        lse: Tensor | None,
    ) -> None:
        """Writes out [T, H, L] and lse [T, H]; there is a sequence and a query token."""

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> Tensor:
        """[T, H, L] from [T, H, L + R]. InputError where the tensors do not fit together."""
        checked = self._checked(metadata)
        self._check_call(query, cache, checked, params, out, lse)
        self._check_places(checked, cache)
        tokens, heads, _ = query.shape
        if out is None:
            out = query.new_empty(tokens, heads, params.kv_lora_rank)
        if tokens and checked.seq_lens.shape[0]:
            self._absorbed(query, cache, checked, params, out, lse)
        return out

    def prefill(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        w_uk: Tensor,
        w_uv: Tensor,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        chunk: int = 0,
    ) -> Tensor:
        """[T, H, Dv] from [T, H, nope + R]. Waits for the device once a batch, for its lengths."""
        self._check_device(query)
        checked = self._checked(metadata)
        check_query(self.name, query, cache, checked)
        width = cache.shape[-1]
        check_cache(self.name, cache, width, params, self.block_multiple, self.packed)
        check_weights(self.name, query, w_uk, w_uv, width, params, chunk)
        check_out(self.name, query, w_uv.shape[1], out, lse)
        self._check_places(checked, cache)
        with plain_torch(query.device):
            weights = self._weights(w_uk), self._weights(w_uv)
            parts = self._parts_of(checked, cache, chunk)
            attend, merge = self._attend, self._merge
            found, top = prefill(query, cache, checked, parts, params, weights, attend, merge)
            if out is None and found.shape[0] == query.shape[0] and found.dtype is query.dtype:
                out = found
            else:
                if out is None:
                    out = query.new_empty(*query.shape[:2], w_uv.shape[1])
                out[: found.shape[0]] = found
            if lse is not None:
                lse[: top.shape[0]] = top
        return out

    def merge_states(
        self,
        out_a: Tensor,
        lse_a: Tensor,
        out_b: Tensor,
        lse_b: Tensor,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """attnctl.ops.merge_states: out in out_a's dtype, lse float32."""
        self._check_device(out_a)
        check_states(self.name, out_a, lse_a, out_b, lse_b, out, lse)
        if out is None:
            out = torch.empty_like(out_a, memory_format=torch.contiguous_format)
        if lse is None:
            lse = torch.empty(lse_a.shape, dtype=torch.float32, device=lse_a.device)
        return self._merge(out_a, lse_a, out_b, lse_b, out, lse)

    def _parts_of(self, metadata: Metadata, cache: Tensor, chunk: int) -> Parts:
        """The layers of a model share a batch: its context is cut in parts once."""
        key = cache.shape[1], chunk, _stream(cache)
        last = self._parts
        if last is None or last[0] is not metadata or last[1] != key:
            last = self._parts = metadata, key, parts_of(metadata, cache.shape[1], chunk)
        return last[2]

    def _weights(self, weight: Tensor) -> Tensor:
        """A weight in the dtype in which keys and values are made."""
        return weight


def _stream(tensor: Tensor) -> Any:
    """The stream on which what is made now may be used."""
    if tensor.is_cuda:
        return torch.cuda.current_stream(tensor.device)
    return torch.xpu.current_stream(tensor.device) if tensor.device.type == "xpu" else None
