"""Batches for FLEX_ATTENTION, and what the specification makes of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnctl.backends.flex_attention.kernel import FlexAttention
from attnctl.ops.paged import paged_attention
from attnctl.ops.paged_inputs import Batch
from attnctl.runtime import Metadata

MASKS: dict[str, dict[str, Any]] = {
    "causal": {},
    "window": {"window": 7},
    "chunk": {"chunk": 24},
    "ranges": {"ranges": True},
    "all of them": {"window": 9, "chunk": 24, "ranges": True},
    "encoder": {"causal": False},
    "two-sided": {"causal": False, "window": 6, "window_right": 5},
}


def metadata_of(batch: Batch) -> Metadata:
    tensors = (batch.query_start_loc, batch.seq_lens, batch.block_table, batch.slots[batch.new])
    bounds = {"max_query_len": batch.max_query_len, "max_seq_len": batch.max_seq_len}
    return FlexAttention().build_metadata(*tensors, **bounds)


def cache_of(batch: Batch, rest: float) -> Tensor:
    """The batch's context in an NHD cache with `rest` everywhere else."""
    page = batch.case.count("page")
    both = torch.cat([batch.key, batch.value], dim=-1)[: batch.slots.shape[0]]
    cache = both.new_full((batch.num_blocks * page, *both.shape[1:]), rest)
    cache[batch.slots] = both
    return cache.unflatten(0, (batch.num_blocks, page))


def specified(batch: Batch, cache: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    width = batch.query.shape[2]
    caches = cache[..., :width], cache[..., width:]
    rows = (batch.block_table, batch.query_start_loc, batch.seq_lens)
    return paged_attention(batch.query, *caches, *rows, batch.params, dtype=dtype)
