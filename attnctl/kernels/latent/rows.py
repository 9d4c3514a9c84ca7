"""Rows of a latent cache as they are stored and read, for every backend: plain torch, any device.

Nothing here waits for a device but the two functions that say so.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.ops.mla import Latent
from attnctl.ops.packed_rows import pack_rows

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
PACKED = "fp8_ds_mla"


def encode_rows(latent: Tensor, rope: Tensor, cache: Tensor, params: Latent) -> Tensor:
    """[T, C] in the cache's dtype. Values beyond an FP8 format's largest become that."""
    if params.kv_scale != 1.0 and cache.dtype not in FP8:
        # whoever reads multiplies with it, whatever the cache holds
        latent, rope = (x.float() / params.kv_scale for x in (latent, rope))
    if cache.dtype is torch.uint8:
        return pack_rows(latent, rope)
    rows = torch.cat([latent, rope], dim=1)
    if cache.dtype in FP8:
        most = torch.finfo(cache.dtype).max
        rows = (rows.float() / params.kv_scale).clamp(-most, most)
    return rows.to(cache.dtype)


def store_rows(rows: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Puts rows [T, C] in slots [<= T] of a cache [N, P, C]; -1: nothing. Waits for the device."""
    live = (slots >= 0).nonzero()[:, 0]
    where = slots[live].long()
    page = cache.shape[1]
    if cache.dtype in FP8:
        # FP8 tensors cannot be indexed, their bytes can
        cache, rows = cache.view(torch.uint8), rows.view(torch.uint8)
    with torch.no_grad():
        cache[where // page, where % page] = rows[live]


def read_rows(cache: Tensor, pages: Tensor, offsets: Tensor) -> Tensor:
    """cache[pages, offsets] for a cache of any dtype."""
    if cache.dtype in FP8:
        return cache.view(torch.uint8)[pages, offsets].view(cache.dtype)
    return cache[pages, offsets]
