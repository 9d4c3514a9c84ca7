"""Faults of paged attention, each in a copy of the tile kernel."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.ops.paged import Paged, visible
from attnctl.selftest.tiles import Row, Tiles

replace = msgspec.structs.replace


def sound(case: Any) -> Tiles:
    """The kernel without a fault."""
    return Tiles()


class window_one_less(Tiles):
    def mask(self, count: int, length: int, params: Paged, ranges: Tensor | None) -> Tensor:
        return visible(count, length, replace(params, window=(params.window or 0) - 1), ranges)


class window_one_more(Tiles):
    def mask(self, count: int, length: int, params: Paged, ranges: Tensor | None) -> Tensor:
        return visible(count, length, replace(params, window=(params.window or 0) + 1), ranges)


class window_right_ignored(Tiles):
    def mask(self, count: int, length: int, params: Paged, ranges: Tensor | None) -> Tensor:
        return visible(count, length, replace(params, window_right=None), ranges)


class chunk_from_the_query(Tiles):
    def mask(self, count: int, length: int, params: Paged, ranges: Tensor | None) -> Tensor:
        return visible(count, length, replace(params, chunk=None, window=params.chunk), ranges)


class sink_dropped(Tiles):
    def sum(
        self, logits: Tensor, values: Tensor, head: int, params: Paged, tile: int = 16
    ) -> Tensor:
        return super().sum(logits, values, head, replace(params, sinks=None), tile)


class sink_in_every_tile(Tiles):
    def sum(
        self, logits: Tensor, values: Tensor, head: int, params: Paged, tile: int = 16
    ) -> Tensor:
        tiles = -(-logits.shape[0] // tile)
        more = torch.log(torch.tensor(float(tiles)))
        assert params.sinks is not None
        return super().sum(logits, values, head, replace(params, sinks=params.sinks + more), tile)


class softcap_dropped(Tiles):
    def cap(self, logits: Tensor, limit: float) -> Tensor:
        return logits


class softcap_before_scale(Tiles):
    def capped(self, products: Tensor, params: Paged) -> Tensor:
        return self.cap(products, params.softcap or 1.0) * params.scale


class alibi_reversed(Tiles):
    def slope(self, slopes: Tensor, head: int) -> Tensor:
        return slopes[slopes.shape[0] - 1 - head]


class ranges_ignored(Tiles):
    def mask(self, count: int, length: int, params: Paged, ranges: Tensor | None) -> Tensor:
        return visible(count, length, params, None)


class causal_from_the_top(Tiles):
    def mask(self, count: int, length: int, params: Paged, ranges: Tensor | None) -> Tensor:
        return torch.arange(length)[None, :] <= torch.arange(count)[:, None]


class causal_off_by_one(Tiles):
    def mask(self, count: int, length: int, params: Paged, ranges: Tensor | None) -> Tensor:
        seen = visible(count, length, params, ranges)
        return seen & (
            torch.arange(length)[None, :] < torch.arange(length - count, length)[:, None]
        )


class no_rescale(Tiles):
    def rescale(self, before: Tensor, now: Tensor) -> Tensor:
        return torch.ones(())


class no_maximum(Tiles):
    def sum(
        self, logits: Tensor, values: Tensor, head: int, params: Paged, tile: int = 16
    ) -> Tensor:
        weights = torch.exp(logits)
        return (weights / weights.sum()) @ values


class last_tile_dropped(Tiles):
    def tiles(self, length: int, tile: int) -> range:
        return range(0, length - length % tile if length > tile else length, tile)


class tail_not_masked(Tiles):
    def mask(self, count: int, length: int, params: Paged, ranges: Tensor | None) -> Tensor:
        seen = visible(count, length, params, ranges)
        more = -length % 16
        return torch.cat([seen, seen.new_ones(count, more)], dim=1)


class masked_values_read(Tiles):
    def context(self, cache: Tensor, metadata: Any, row: Row, *rest: Any) -> tuple[Tensor, Tensor]:
        whole = Row(row.token, row.sequence, row.position, torch.ones_like(row.seen))
        return super().context(cache, metadata, whole, *rest)


class heads_interleaved(Tiles):
    def kv_head(self, head: int, heads: int, kv_heads: int) -> int:
        return head % kv_heads


class keys_for_values(Tiles):
    def context(self, *given: Any) -> tuple[Tensor, Tensor]:
        keys, values = super().context(*given)
        return keys, keys[:, : values.shape[1]]


class pages_in_order(Tiles):
    def table(self, metadata: Any, sequence: int) -> Tensor:
        pages = metadata.block_table.shape[1]
        return sequence * pages + torch.arange(pages)


class narrow_offset(Tiles):
    def table(self, metadata: Any, sequence: int) -> Tensor:
        return super().table(metadata, sequence) % 4


class scale_ignored(Tiles):
    def forward(
        self, query: Tensor, cache: Tensor, metadata: Any, params: Paged, out: Tensor
    ) -> Tensor:
        plain = replace(params, k_scale=1.0, v_scale=1.0)
        return super().forward(query, cache, metadata, plain, out)


class half_precision_sum(Tiles):
    def sum(
        self, logits: Tensor, values: Tensor, head: int, params: Paged, tile: int = 16
    ) -> Tensor:
        weights = torch.softmax(logits, dim=0).bfloat16()
        return (weights @ values.bfloat16()).float()


class last_row_unwritten(Tiles):
    def store(self, out: Tensor, token: int, head: int, value: Tensor) -> None:
        if token < out.shape[0] - 1:
            super().store(out, token, head, value)


class row_past_the_end(Tiles):
    def forward(
        self, query: Tensor, cache: Tensor, metadata: Any, params: Paged, out: Tensor
    ) -> Tensor:
        super().forward(query, cache, metadata, params, out)
        behind = out.storage_offset() + out.numel()
        out.as_strided((8,), (1,), behind).fill_(0.0)
        return out


class padding_written(Tiles):
    def forward(
        self, query: Tensor, cache: Tensor, metadata: Any, params: Paged, out: Tensor
    ) -> Tensor:
        super().forward(query, cache, metadata, params, out)
        out[int(metadata.query_start_loc[-1]) :] = 0.0
        return out


class sequences_swapped(Tiles):
    def table(self, metadata: Any, sequence: int) -> Tensor:
        return super().table(metadata, sequence - 1).clamp(min=0)


class slot_minus_one_written(Tiles):
    def write_cache(
        self, key: Tensor, value: Tensor, cache: Tensor, metadata: Any, params: Paged
    ) -> None:
        wrapped = metadata.slot_mapping % (cache.shape[0] * cache.shape[1])
        super().write_cache(key, value, cache, replace(metadata, slot_mapping=wrapped), params)


class slots_shifted(Tiles):
    def write_cache(
        self, key: Tensor, value: Tensor, cache: Tensor, metadata: Any, params: Paged
    ) -> None:
        late = (metadata.slot_mapping + 1) % (cache.shape[0] * cache.shape[1])
        super().write_cache(key, value, cache, replace(metadata, slot_mapping=late), params)


class crashes(Tiles):
    def forward(self, *given: Any) -> Tensor:
        os.kill(os.getpid(), signal.SIGSEGV)
        return super().forward(*given)


class hangs(Tiles):
    def forward(self, *given: Any) -> Tensor:
        while True:
            time.sleep(60)
