"""Latent attention at workload sizes: absorbed for decode, uncompressed for prefill, and sparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.layer import Layer
from attnctl.ops.mla import Latent, latent_attention, uncompressed_attention
from attnctl.ops.mla_inputs import KV_SCALE, PACKED
from attnctl.ops.mla_sparse import sparse_latent_attention
from attnctl.ops.packed_rows import pack_rows
from attnctl.ops.paged_trial import STORAGE
from attnctl.tune.measure.attended import AttendedBatch
from attnctl.tune.measure.lengths import Lengths, Places, lay_out, normal, sub_batch
from attnctl.tune.settings import Work

CHUNK = 8192
"""Context tokens that are uncompressed at a time: what bounds the memory of a long prefill."""


class LatentBatch(AttendedBatch):
    """One row of L + R columns a token in pages [N, P, L + R], for all heads."""

    def __init__(self, work: Work, lengths: Lengths, device: torch.device) -> None:
        layer, mla = work.layer, work.layer.group.mla
        assert mla is not None
        self.lengths, self.device = lengths, device
        self.decode = work.phase == "decode"
        self.page = work.page
        self.rank, self.rope = mla.kv_lora_rank, mla.qk_rope_head_dim
        dtype = getattr(torch, layer.dtype)
        heads = layer.heads or 1
        self.places, self.pages = lay_out(lengths, work.page, device)
        self.cache = self._cache(layer)
        width = (self.rank if self._absorbed else mla.qk_nope_head_dim) + self.rope
        self.query = normal((lengths.tokens, heads, width), dtype, device)
        self.out_width = self.rank if self._absorbed else mla.v_head_dim
        self.params = Latent(
            scale=(mla.qk_nope_head_dim + self.rope) ** -0.5,
            kv_lora_rank=self.rank,
            kv_scale=KV_SCALE if layer.kv_cache_dtype in STORAGE else 1.0,
        )
        self.weights: tuple[Tensor, ...] = ()
        if not self._absorbed:
            shapes = ((heads, width_of, self.rank) for width_of in _widths(work))
            self.weights = tuple(normal(s, dtype, device) * self.rank**-0.5 for s in shapes)
        self._specified: tuple[Tensor, Tensor] | None = None

    @property
    def _absorbed(self) -> bool:
        return self.decode

    def _expected(self, runtime: Any) -> tuple[Tensor, Tensor]:
        if self._specified is None:
            exact, same = (self._reference(x) for x in (torch.float64, self.query.dtype))
            self._specified = exact, same
        return self._specified

    def _cache(self, layer: Layer) -> Tensor:
        name = layer.dtype if layer.kv_cache_dtype == "auto" else layer.kv_cache_dtype
        dtype = STORAGE.get(name) or getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype):
            raise InputError(f"tune: caches of {name} are not laid out for latent attention")
        return normal((self.pages, self.page, self.rank + self.rope), dtype, self.device)

    def _call(self, runtime: Any, copy: int, out: Tensor) -> Callable[[], Any]:
        metadata = self.metadata(runtime, self.places[copy])

        def absorbed() -> Any:
            return runtime.forward(self.query, self.cache, metadata, self.params, out)

        def uncompressed() -> Any:
            return runtime.prefill(
                self.query, self.cache, metadata, self.params, *self.weights, out=out, chunk=CHUNK
            )

        return absorbed if self._absorbed else uncompressed

    def _reference(self, dtype: torch.dtype) -> Tensor:
        rows, table, starts, lens = sub_batch(self.lengths, self.places[0], self.device)
        batch = (self.query[rows], self.cache, table, starts, lens)
        if self._absorbed:
            return latent_attention(*batch, self.params, dtype=dtype)[0]
        w_uk, w_uv = self.weights
        return uncompressed_attention(*batch, w_uk, w_uv, self.params, chunk=CHUNK, dtype=dtype)[0]


class SparseBatch(LatentBatch):
    """Latent attention over tokens that were picked: as many random ones as the indexer picks."""

    def __init__(self, work: Work, lengths: Lengths, device: torch.device) -> None:
        super().__init__(work, lengths, device)
        indexer = work.layer.group.indexer
        topk = 2048 if indexer is None else indexer.topk
        self.slots = [_picked(lengths, places, topk, self.page) for places in self.places]

    @property
    def _absorbed(self) -> bool:
        return True

    def _cache(self, layer: Layer) -> Tensor:
        if layer.kv_cache_dtype != PACKED:
            return super()._cache(layer)
        rows = normal((self.page * 8, self.rank + self.rope), torch.bfloat16, torch.device("cpu"))
        packed = pack_rows(rows[:, : self.rank], rows[:, self.rank :]).unflatten(0, (8, self.page))
        return packed.repeat(-(-self.pages // 8), 1, 1)[: self.pages].to(self.device)

    def _call(self, runtime: Any, copy: int, out: Tensor) -> Callable[[], Any]:
        metadata, slots = self.metadata(runtime, self.places[copy]), self.slots[copy]

        def call() -> Any:
            return runtime.forward(self.query, self.cache, metadata, slots, self.params, out)

        return call

    def _reference(self, dtype: torch.dtype) -> Tensor:
        rows = self.lengths.checked_rows(self.places[0].starts.tolist()).to(self.device)
        slots = self.slots[0][rows]
        return sparse_latent_attention(
            self.query[rows], self.cache, slots, self.params, dtype=dtype
        )[0]


def _widths(work: Work) -> tuple[int, int]:
    mla = work.layer.group.mla
    assert mla is not None
    return mla.qk_nope_head_dim, mla.v_head_dim


def _picked(lengths: Lengths, places: Places, topk: int, page: int) -> Tensor:
    """Slots [T, K] int32: topk random tokens that each query may see, -1 behind fewer."""
    device = places.table.device
    generator = torch.Generator(device).manual_seed(13)
    starts = places.starts.long()
    owner = torch.repeat_interleave(
        torch.arange(len(lengths.queries), device=device), starts.diff()
    )
    index = torch.arange(lengths.tokens, device=device)
    # token t of its sequence sees the tokens before it and itself
    last = places.seq_lens.long()[owner] - starts[owner + 1] + index
    shape = (lengths.tokens, topk)
    drawn = torch.rand(shape, generator=generator, device=device)
    positions = (drawn * (last + 1)[:, None]).long().clamp(max=last[:, None])
    row = torch.arange(topk, device=device)[None]
    # where all fit, each once
    positions = torch.where((last < topk)[:, None], row, positions)
    pages = (
        places.table[owner]
        .long()
        .gather(1, (positions // page).clamp(max=places.table.shape[1] - 1))
    )
    slots = pages * page + positions % page
    return torch.where((last < topk)[:, None] & (row > last[:, None]), -1, slots).to(torch.int32)
