"""The same results in plain torch, computed in float32: for a machine without a compiler."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.plain_torch import CPU, plain_torch
from attnctl.ops.paged import Paged, visible

# logits of one block of queries are held at once: [H, QUERIES, S]
QUERIES = 128


class TorchKernels:
    """Gathers each sequence's pages and attends a block of queries at a time."""

    name = "torch"

    @plain_torch(CPU)
    def attend(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        block_table: Tensor,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        params: Paged,
        out: Tensor,
    ) -> None:
        starts = query_start_loc.tolist()
        for b, length in enumerate(seq_lens.tolist()):
            count = starts[b + 1] - starts[b]
            if count == 0:
                continue
            pages = block_table[b, : -(-length // key_cache.shape[1])].long()
            keys = _context(key_cache, pages, length, params.k_scale)
            values = _context(value_cache, pages, length, params.v_scale)
            ranges = None if params.prefix_ranges is None else params.prefix_ranges[b]
            seen = visible(count, length, params, ranges)
            for first in range(0, count, QUERIES):
                last = min(first + QUERIES, count)
                rows = slice(starts[b] + first, starts[b] + last)
                position = length - count + first
                part = query[rows].float()
                out[rows] = _attend(part, keys, values, seen[first:last], position, params).to(
                    out.dtype
                )

    @plain_torch(CPU)
    def write(
        self,
        key: Tensor,
        value: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        slot_mapping: Tensor,
        k_scale: float | Tensor,
        v_scale: float | Tensor,
    ) -> None:
        slots = slot_mapping[: key.shape[0]].long()
        rows = (slots >= 0).nonzero()[:, 0]
        slots = slots[rows]
        for source, cache, scale in ((key, key_cache, k_scale), (value, value_cache, v_scale)):
            page, row = slots // cache.shape[1], slots % cache.shape[1]
            stored, scales = _stored(source[rows], cache.dtype, scale)
            cache[page, row] = stored
            if isinstance(scale, Tensor):
                scale[page, row] = scales


def _context(cache: Tensor, pages: Tensor, length: int, scale: float | Tensor) -> Tensor:
    """[Hk, S, D or Dv] float32 of one sequence."""
    rows = cache[pages].flatten(0, 1)[:length].float()
    if isinstance(scale, Tensor):
        rows = rows * scale[pages].flatten(0, 1)[:length, :, None]
    else:
        rows = rows * scale
    return rows.transpose(0, 1)


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, position: int, params: Paged
) -> Tensor:
    """[Q, H, D] at positions from `position` on -> [Q, H, Dv], float32."""
    count, heads, _ = query.shape
    kv_heads, length, width_v = values.shape
    if length == 0:
        return query.new_zeros(count, heads, width_v)
    grouped = query.unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3)
    logits = grouped @ keys[:, None].transpose(-1, -2) * params.scale
    if params.softcap:
        logits = params.softcap * torch.tanh(logits / params.softcap)
    if params.alibi_slopes is not None:
        at = torch.arange(position, position + count, device=query.device)[:, None]
        distance = torch.arange(length, device=query.device)[None, :] - at
        logits = logits + params.alibi_slopes.float().view(kv_heads, -1, 1, 1) * distance
    logits = logits.masked_fill(~seen, -torch.inf)
    top = logits.amax(-1, keepdim=True)
    if params.sinks is not None:
        sink = params.sinks.float().view(kv_heads, -1, 1, 1)
        top = torch.maximum(top, sink)
    weights = torch.exp(logits - torch.where(top == -torch.inf, 0.0, top))
    total = weights.sum(-1, keepdim=True)
    if params.sinks is not None:
        total = total + torch.exp(sink - top)
    # what no row sees may hold NaN, and 0 x NaN is NaN
    values = torch.where(seen.any(0)[:, None], values, 0.0)
    mixed = (weights @ values[:, None]) / torch.where(total > 0, total, 1.0)
    return mixed.permute(2, 0, 1, 3).flatten(1, 2)


def _stored(
    rows: Tensor, dtype: torch.dtype, scale: float | Tensor
) -> tuple[Tensor, Tensor | None]:
    """Rows [T, Hk, D] as the cache holds them, and the scales of an int8 cache [T, Hk]."""
    if isinstance(scale, Tensor):
        scales = (rows.float().abs().amax(-1) / 127.0).clamp(min=1e-10)
        return (rows.float() / scales[..., None]).round().clamp(-127, 127).to(dtype), scales
    if dtype.itemsize == 1:
        limit = torch.finfo(dtype).max
        return (rows.float() / scale).clamp(-limit, limit).to(dtype), None
    return rows.to(dtype), None
