"""Attention of one sequence after the other; indexing reads and writes the pages."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata

PAGE = 16


class SampleAttention:
    def get_name(self) -> str:
        return "SAMPLE_ATTN"

    def is_ssm(self) -> bool:
        return False

    def cache_shape(
        self,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        head_size_v: int | None = None,
    ) -> tuple[int, ...]:
        """(N, P, Hk, D + Dv). InputError where P is no multiple of 16."""
        if block_size < 1 or block_size % PAGE:
            raise InputError(
                f"a page of {block_size} tokens: SAMPLE_ATTN takes multiples of {PAGE}"
            )
        return (num_blocks, block_size, num_kv_heads, head_size + (head_size_v or head_size))

    def build_metadata(
        self,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        slot_mapping: Tensor,
        *,
        max_query_len: int,
        max_seq_len: int,
    ) -> Metadata:
        return Metadata(
            query_start_loc=query_start_loc,
            seq_lens=seq_lens,
            block_table=block_table,
            slot_mapping=slot_mapping,
            max_query_len=max_query_len,
            max_seq_len=max_seq_len,
        )

    def write_cache(
        self, key: Tensor, value: Tensor, cache: Tensor, metadata: Metadata, params: Paged
    ) -> None:
        slots = metadata.slot_mapping
        kept = slots >= 0
        rows = torch.cat((key[: len(slots)], value[: len(slots)]), -1)[kept]
        page = cache.shape[1]
        cache[slots[kept] // page, slots[kept] % page] = rows.to(cache.dtype)

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        tokens, heads, width = query.shape
        if out is None:
            out = query.new_zeros(tokens, heads, cache.shape[3] - width)
        starts = metadata.query_start_loc.tolist()
        for b, length in enumerate(metadata.seq_lens.tolist()):
            first, last = starts[b], starts[b + 1]
            if first < last:
                rows = _context(cache, metadata.block_table[b], length)
                seen = _seen(last - first, length, params.window)
                attended = _attend(
                    query[first:last], rows[..., :width], rows[..., width:], seen, params
                )
                out[first:last] = attended.to(out.dtype)
        return out


def _context(cache: Tensor, pages: Tensor, length: int) -> Tensor:
    """[S, Hk, D + Dv]: K and V of one sequence's tokens, in float32."""
    count = -(-length // cache.shape[1])
    return cache[pages[:count].long()].flatten(0, 1)[:length].float()


def _seen(queries: int, length: int, window: int | None) -> Tensor:
    """[queries, S] bool: the past and the token itself, as far back as the window reaches."""
    query = torch.arange(length - queries, length)[:, None]
    context = torch.arange(length)[None, :]
    seen = context <= query
    return seen if window is None else seen & (context > query - window)


def _attend(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, params: Paged) -> Tensor:
    """[Q, H, Dv] from [Q, H, D], [S, Hk, D], [S, Hk, Dv] and [Q, S]."""
    group = query.shape[1] // keys.shape[1]
    keys, values = (rows.repeat_interleave(group, dim=1) for rows in (keys, values))
    # what no query sees may be anything, and 0 x NaN is NaN
    values = torch.where(seen.any(0)[:, None, None], values, 0.0)
    logits = torch.einsum("qhd,shd->hqs", query.float(), keys) * params.scale
    if params.softcap is not None:
        logits = params.softcap * torch.tanh(logits / params.softcap)
    weights = torch.softmax(logits.masked_fill(~seen, -torch.inf), -1)
    return torch.einsum("hqs,shd->qhd", weights, values)


RUNTIME = SampleAttention()
