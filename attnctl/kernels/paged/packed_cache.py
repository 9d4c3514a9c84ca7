"""What runtimes of the paged family share that call somebody else's kernel: the packed cache.

K and V of a token lie side by side in the last dimension, so K and V are views of one tensor and
any kernel that takes strides reads them in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.kernels.batch_checks import FLOATS
from attnctl.kernels.metadata_checks import CheckedBatches
from attnctl.kernels.paged.checks import check_call, check_kind, check_write
from attnctl.kernels.size_checks import check_sizes
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata


class PackedCache(CheckedBatches):
    """The half of PagedRuntime that does not attend; a backend adds `forward`."""

    block_multiple = 16
    _live: tuple[Metadata, Tensor] | None = None
    _write: tuple[Callable[..., None] | None] | None = None

    def cache_shape(
        self,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        head_size_v: int | None = None,
    ) -> tuple[int, ...]:
        """(N, P, Hk, D + Dv), K before V. InputError: P is no multiple that the kernel takes, or
        a size is no positive integer."""
        width_v = head_size if head_size_v is None else head_size_v
        check_sizes(
            self.name, block_size, self.block_multiple, num_blocks=num_blocks,
            num_kv_heads=num_kv_heads, head_size=head_size, head_size_v=width_v,
        )  # fmt: skip
        return (num_blocks, block_size, num_kv_heads, head_size + width_v)

    def write_cache(
        self, key: Tensor, value: Tensor, cache: Tensor, metadata: Metadata, params: Paged
    ) -> None:
        checked = self._checked(metadata)
        check_write(self.name, key, value, cache, checked, params)
        if self._write is None and cache.is_cuda:
            self._write = (_kernel(),)
        write = self._write[0] if self._write and cache.is_cuda else None
        if write is None:
            refuse(self.name, params)
            write_packed(key, value, cache, checked.slot_mapping, params)
            return
        keys, values = views(cache, key.shape[2])
        write(key, value, keys, values, checked.slot_mapping, params.k_scale, params.v_scale)

    def _checked_call(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None,
    ) -> Metadata:
        """The batch of a call. InputError: its tensors do not fit together."""
        checked = self._checked(metadata)
        check_call(self.name, query, cache, checked, params, out)
        self._check_places(checked, cache)
        return checked

    def _settle(self, out: Tensor | None, found: Tensor, metadata: Metadata) -> Tensor:
        """The result in `out` where one was given: rows of no sequence keep what they held.

        Which rows those are is found once for a batch, so that its layers pay one launch each.
        """
        if out is None or out is found:
            return found
        live = self._live
        if live is None or live[0] is not metadata or live[1].shape[0] != found.shape[0]:
            index = torch.arange(found.shape[0], device=found.device)
            live = self._live = (metadata, (index < metadata.query_start_loc[-1])[:, None, None])
        return torch.where(live[1], found, out, out=out)


def _kernel() -> Callable[..., None] | None:
    """The bundled cache write with launches of its own to keep, None without Triton."""
    try:
        from attnctl.kernels.triton.paged.cache import write_cache
        from attnctl.kernels.triton.relaunch import Relaunches
    except ImportError:
        return None
    return partial(write_cache, kept=Relaunches())


def refuse(name: str, params: Paged, **instead: str) -> None:
    """InputError: the params ask for a feature that the kernel has not, or are none.

    instead: feature -> words. Scales per token and head are always refused: they belong to the
    bundled kernels' int8 cache.
    """
    check_kind(name, params)
    for feature, words in instead.items():
        if getattr(params, feature) is not None:
            raise InputError(f"{name}: {words}")
    if isinstance(params.k_scale, Tensor) or isinstance(params.v_scale, Tensor):
        raise InputError(f"{name}: takes one scale for all of K and one for V, not one a token")


def views(cache: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """K [N, P, Hk, D] and V [N, P, Hk, Dv] of a packed cache: no copy."""
    return cache.narrow(-1, 0, width), cache.narrow(-1, width, cache.shape[-1] - width)


def per_head(numbers: Tensor | None, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """Sinks or slopes as libraries take them: of one dtype, one after the other in memory."""
    return None if numbers is None else numbers.to(dtype).contiguous()


def over_scales(key: Tensor, value: Tensor, cache: Tensor, params: Paged) -> tuple[Tensor, Tensor]:
    """K and V as a cache of floats keeps them: whoever reads multiplies with the scales.

    FP8 and int8 caches are scaled by the kernels that round.
    """
    if cache.dtype not in FLOATS:
        return key, value
    parts = ((key, params.k_scale), (value, params.v_scale))
    key, value = (x if scale == 1.0 else (x.float() / scale).to(x.dtype) for x, scale in parts)
    return key, value


def write_packed(
    key: Tensor, value: Tensor, cache: Tensor, slot_mapping: Tensor, params: Paged
) -> None:
    """Stores K and V in their slots with plain torch, on any device, without waiting for it.

    A slot of -1 rewrites the first kept token's slot with that token's own values, so that the
    number of rows stays known on the host; where no token is kept, slot 0 gets what it held.
    """
    rows = slot_mapping.shape[0]
    if rows == 0:
        return
    page, width = cache.shape[1], key.shape[2]
    kept = slot_mapping >= 0
    source = torch.where(
        kept, torch.arange(rows, device=kept.device), kept.to(torch.uint8).argmax()
    )
    slots = slot_mapping[source].clamp(min=0).long()
    place = (slots // page, slots % page)
    fp8 = cache.dtype.is_floating_point and cache.dtype.itemsize == 1
    with torch.no_grad():
        for part, tensor, scale in (
            (cache[..., :width], key, params.k_scale),
            (cache[..., width:], value, params.v_scale),
        ):
            scaled = tensor[:rows] if scale == 1.0 else tensor[:rows].float() / scale
            if fp8:
                # a cast beyond the largest finite value gives NaN
                scaled = scaled.float().clamp(
                    *(sign * torch.finfo(cache.dtype).max for sign in (-1, 1))
                )
            stored = scaled[source].to(cache.dtype)
            # torch's index_put has no FP8: the bits are moved as bytes
            if fp8:
                part, stored = part.view(torch.uint8), stored.view(torch.uint8)
            any_kept = kept.any()
            part[place] = torch.where(any_kept, stored, part[place])
