"""One batch of a layer shape through a plan: its cache written, its attention computed."""

from __future__ import annotations

from typing import Any

import torch

from attnctl.ops.indexer import Indexing
from attnctl.plans.opening import LayerPlan
from attnctl.tune.measure.batch import Lengths, build
from attnctl.tune.measure.latent import LatentBatch, SparseBatch
from attnctl.tune.measure.lengths import normal
from attnctl.tune.measure.paged import PagedBatch
from attnctl.tune.settings import Work
from attnctl.tune.workload import Load


def run_once(plan: LayerPlan, load: Load, device: torch.device) -> None:
    """What a request of this shape launches, on a cache of one page that all its tokens share."""
    work = Work(
        layer=plan.layer,
        phase=load.phase,
        batch=load.batch,
        context=load.context,
        query=load.query,
        page=plan.block_size or 0,
    )
    order = getattr(plan.runtime, "cache_stride_order", lambda: None)()
    lengths = Lengths(
        queries=(work.query,) * work.batch, contexts=(work.context,) * work.batch, thin=True
    )
    batch = build(work, lengths, device, order)
    _write(batch, plan)
    for call in batch.calls(plan):
        call()


def _write(batch: Any, plan: LayerPlan) -> None:
    """Each new token's row in the cache; states have none."""
    if isinstance(batch, PagedBatch):
        heads = batch.cache.shape[2]
        rows = (batch.lengths.tokens, heads)
        key, value = (
            normal((*rows, width), batch.query.dtype, batch.device)
            for width in (batch.width, batch.out_width)
        )
        metadata = batch.metadata(plan, batch.places[0])
        plan.write_cache(key, value, batch.cache, metadata, batch.params)
    elif isinstance(batch, LatentBatch):
        tokens = batch.lengths.tokens
        latent, rope = (
            normal((tokens, width), batch.query.dtype, batch.device)
            for width in (batch.rank, batch.rope)
        )
        metadata = batch.metadata(plan, batch.places[0])
        plan.write_cache(latent, rope, batch.cache, metadata, batch.params)
        if isinstance(batch, SparseBatch):
            _index(batch, plan, metadata)


def _index(batch: SparseBatch, plan: LayerPlan, planned: Any) -> None:
    """The indexer of sparse layers, which its runtime carries."""
    indexer = plan.layer.group.indexer
    if indexer is None:
        return
    runtime, metadata = planned.runtime, planned.metadata
    tokens, device, dtype = batch.lengths.tokens, batch.device, batch.query.dtype
    params = Indexing(topk=indexer.topk, scale=indexer.head_dim**-0.5)
    shape = runtime.index_cache_shape(batch.pages, batch.page, indexer.head_dim)
    cache = torch.zeros(shape, dtype=torch.uint8, device=device)
    key = normal((tokens, indexer.head_dim), dtype, device)
    runtime.write_index(key, cache, metadata, params)
    query = normal((tokens, indexer.heads, indexer.head_dim), dtype, device)
    weights = normal((tokens, indexer.heads), torch.float32, device)
    runtime.select_tokens(query, weights, cache, metadata, params)
