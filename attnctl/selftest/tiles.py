"""Paged attention by tiles in plain torch: a copy of the kernels' algorithm to plant faults into.

One query row of one head at a time, a tile a page, with the running maximum and sum of the fused
kernels. Slow, and as exact as float32 is.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import torch
from torch import Tensor

from attnctl.kernels.paged.packed_cache import PackedCache
from attnctl.ops.paged import Paged, visible
from attnctl.runtime import Metadata


class Row(msgspec.Struct):
    """One query token: its sequence, its place in it, and what it sees of each context token."""

    token: int
    sequence: int
    position: int
    seen: Tensor


class Tiles(PackedCache):
    """PagedRuntime whose steps are methods, so that a fault replaces one of them."""

    name = "TILES"
    block_multiple = 8

    def forward(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Paged, out: Tensor
    ) -> Tensor:
        """[T, H, Dv] in out."""
        width, heads = query.shape[2], query.shape[1]
        for row in self.rows(metadata, params):
            for head in range(heads):
                keys, values = self.context(cache, metadata, row, head, heads, width, params)
                logits = self.logits(query[row.token, head].float(), keys, row, head, params)
                self.store(out, row.token, head, self.sum(logits, values, head, params))
        return out

    def rows(self, metadata: Metadata, params: Paged) -> Iterator[Row]:
        """Every query token with its mask."""
        starts = metadata.query_start_loc.tolist()
        for b, length in enumerate(metadata.seq_lens.tolist()):
            count = starts[b + 1] - starts[b]
            ranges = None if params.prefix_ranges is None else params.prefix_ranges[b].cpu()
            seen = self.mask(count, length, params, ranges)
            for i in range(count):
                yield Row(starts[b] + i, b, length - count + i, seen[i])

    def mask(self, count: int, length: int, params: Paged, ranges: Tensor | None) -> Tensor:
        return visible(count, length, params, ranges)

    def table(self, metadata: Metadata, sequence: int) -> Tensor:
        return metadata.block_table[sequence].long()

    def context(
        self,
        cache: Tensor,
        metadata: Metadata,
        row: Row,
        head: int,
        heads: int,
        width: int,
        params: Paged,
    ) -> tuple[Tensor, Tensor]:
        """K [S, D] and V [S, Dv] of the row's sequence; what is masked is 0."""
        length, page = row.seen.shape[0], cache.shape[1]
        blocks = self.table(metadata, row.sequence)[: -(-length // page)]
        kv_head = self.kv_head(head, heads, cache.shape[2])
        rows = cache[blocks, :, kv_head].flatten(0, 1)[:length].float()
        rows = torch.where(row.seen[:, None], rows, 0.0)
        k_scale, v_scale = params.k_scale, params.v_scale
        return rows[:, :width] * k_scale, rows[:, width:] * v_scale

    def kv_head(self, head: int, heads: int, kv_heads: int) -> int:
        return head // (heads // kv_heads)

    def logits(self, query: Tensor, keys: Tensor, row: Row, head: int, params: Paged) -> Tensor:
        """[S], -inf where the row does not see."""
        found = self.capped(keys @ query, params)
        if params.alibi_slopes is not None:
            distance = torch.arange(row.seen.shape[0]) - row.position
            found = found + self.slope(params.alibi_slopes, head) * distance
        return torch.where(row.seen, found, -torch.inf)

    def capped(self, products: Tensor, params: Paged) -> Tensor:
        scaled = products * params.scale
        return scaled if params.softcap is None else self.cap(scaled, params.softcap)

    def cap(self, logits: Tensor, limit: float) -> Tensor:
        return limit * torch.tanh(logits / limit)

    def slope(self, slopes: Tensor, head: int) -> Tensor:
        return slopes[head]

    def sum(
        self, logits: Tensor, values: Tensor, head: int, params: Paged, tile: int = 16
    ) -> Tensor:
        """[Dv]: the weighed values, tile after tile; 0 where nothing is seen."""
        best = self.first(head, params)
        total = torch.zeros(()) if params.sinks is None else torch.ones(())
        found = torch.zeros(values.shape[1])
        for begin in self.tiles(logits.shape[0], tile):
            part = logits[begin : begin + tile]
            higher = torch.maximum(best, part.max())
            if bool(higher == -torch.inf):
                continue
            weights, kept = torch.exp(part - higher), self.rescale(best, higher)
            total = total * kept + weights.sum()
            found = found * kept + weights @ values[begin : begin + tile]
            best = higher
        return found / total if bool(total > 0) else found

    def first(self, head: int, params: Paged) -> Tensor:
        none = torch.tensor(-torch.inf)
        return none if params.sinks is None else params.sinks[head].cpu()

    def tiles(self, length: int, tile: int) -> range:
        return range(0, length, tile)

    def rescale(self, before: Tensor, now: Tensor) -> Tensor:
        return torch.exp(before - now)

    def store(self, out: Tensor, token: int, head: int, value: Tensor) -> None:
        out[token, head] = value.to(out.dtype)
