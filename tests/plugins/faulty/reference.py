"""The specification as a runtime: right, slow, and easy to break in one place."""

from __future__ import annotations

from typing import Any

import torch

from attnctl.exits import InputError
from attnctl.ops.paged import Paged, paged_attention
from attnctl.runtime import Metadata


class Reference:
    def get_name(self) -> str:
        return type(self).__module__.split(".")[1].upper()

    def is_ssm(self) -> bool:
        return False

    def cache_shape(self, n: int, p: int, h: int, d: int, dv: int | None = None) -> tuple[int, ...]:
        if p < 1:
            raise InputError(f"a page of {p} tokens: there must be one at least")
        return (n, p, h, d + (dv or d))

    def build_metadata(
        self, starts: Any, lens: Any, table: Any, slots: Any, **known: int
    ) -> Metadata:
        return Metadata(
            query_start_loc=starts, seq_lens=lens, block_table=table, slot_mapping=slots, **known
        )

    def write_cache(
        self, key: Any, value: Any, cache: Any, metadata: Metadata, params: Paged
    ) -> None:
        slots = metadata.slot_mapping
        count, page = slots.shape[0], cache.shape[1]
        scaled = key[:count].float() / params.k_scale, value[:count].float() / params.v_scale
        kept = self.kept(slots)
        rows = torch.cat(scaled, -1)[kept].to(cache.dtype)
        cache[slots[kept] // page, slots[kept] % page] = rows

    def kept(self, slots: Any) -> Any:
        return slots >= 0

    def forward(
        self, query: Any, cache: Any, metadata: Metadata, params: Paged, out: Any = None
    ) -> Any:
        width = query.shape[-1]
        caches = cache[..., :width].float(), cache[..., width:].float()
        table, starts = metadata.block_table, metadata.query_start_loc
        lens = metadata.seq_lens
        return paged_attention(
            query, *caches, table, starts, lens, params, out=out, dtype=torch.float32
        )
