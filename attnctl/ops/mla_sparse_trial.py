"""Tries one backend on one case of sparse latent attention, as a user's program would call it."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.latent_runtime import MlaSparseRuntime
from attnctl.ops.case import Case
from attnctl.ops.compare import Comparison, fault, guarded
from attnctl.ops.indexer import Indexing, index_cache_shape
from attnctl.ops.lse_check import compare_states
from attnctl.ops.mla import latent_attention
from attnctl.ops.mla_inputs import (
    LatentBatch,
    build,
    cache_fault,
    narrowed,
    stored_rows,
    written_cache,
)
from attnctl.ops.mla_sparse import sparse_latent_attention, to_slots
from attnctl.ops.mla_trial import stray_writes
from attnctl.ops.packed_rows import plain_rows
from attnctl.ops.paged_cases import lengths

INDEX_HEADS, INDEX_DIM = 64, 128
"""DeepSeek V3.2's indexer (index_n_heads, index_head_dim of its config.json)."""


def try_case(
    runtime: MlaSparseRuntime, case: Case, device: torch.device | str = "cpu"
) -> Comparison:
    """Writes the cache, names tokens, runs forward, and compares all with the specification."""
    batch = build(case, device)
    stored = stored_rows(batch)
    shape = runtime.cache_shape(
        batch.num_blocks,
        case.count("page"),
        case.count("lora"),
        case.count("rope"),
        str(case["kv_cache_dtype"]),
    )
    cache = written_cache(runtime, batch, shape, stored, device)
    differs = cache_fault(cache, stored)
    if differs:
        return fault("wrong", differs)
    indexed = case["picks"] == "indexer"
    named = indexed_slots(runtime, batch, device) if indexed else picked_slots(batch).to(device)
    tokens, heads, _ = batch.query.shape
    out, buffer = guarded((tokens, heads, case.count("lora")), batch.query.dtype, device)
    lse, lse_buffer = guarded((tokens, heads), torch.float32, device)
    metadata = batch.metadata(runtime, batch.steps()[1][1])
    runtime.forward(batch.query, cache, metadata, named, batch.params, out, lse)
    stray = stray_writes(out, lse, batch.live, buffer, lse_buffer)
    if stray:
        return fault("overrun", stray)
    live = slice(batch.live)
    query = batch.query[live]
    exact = specified(batch, query, stored, named, torch.float64)
    same = specified(batch, narrowed(query, runtime, cache), stored, named, out.dtype)
    return compare_states(out[live], lse[live], exact, same)


def specified(
    batch: LatentBatch, query: Tensor, stored: Tensor, named: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """By the named slots; by dense attention where an indexer that may name every token did."""
    query = query.cpu()
    longest = max(lengths(batch.case, "contexts"), default=0)
    if batch.case["picks"] == "indexer" and longest <= batch.case.count("topk"):
        rank = batch.params.kv_lora_rank
        whole = plain_rows(stored, rank, torch.float64)
        places = (batch.block_table.cpu(), batch.query_start_loc.cpu(), batch.seq_lens.cpu())
        return latent_attention(query, whole, *places, batch.params, dtype=dtype)
    slots = named[: batch.live].cpu()
    return sparse_latent_attention(query, stored, slots, batch.params, dtype=dtype)


def picked_slots(batch: LatentBatch) -> Tensor:
    """Slots [T + padding, K] int32 as the case's picks say, from its own seed."""
    case = batch.case
    generator = torch.Generator().manual_seed(case.seed + 1)
    topk, kind = case.count("topk"), str(case["picks"])
    rows = []
    for queries, length in zip(lengths(case, "queries"), lengths(case, "contexts"), strict=True):
        for position in range(length - queries, length):
            order = torch.randperm(position + 1, generator=generator)[:topk]
            rows.append(_listed(order, topk, kind, generator))
    rows += [torch.full((topk,), -1)] * case.count("padding")
    positions = torch.stack(rows) if rows else torch.zeros(0, topk, dtype=torch.int64)
    places = (batch.block_table.cpu(), batch.query_start_loc.cpu(), batch.seq_lens.cpu())
    slots = to_slots(positions, *places, case.count("page"))
    if kind == "stray" and slots.numel():
        total = batch.num_blocks * case.count("page")
        strays = torch.tensor([total, total + 7, 2**31 - 1, -(2**31), -7], dtype=torch.int32)
        where = torch.rand(slots.shape, generator=generator) < 0.3
        drawn = torch.randint(0, len(strays), slots.shape, generator=generator)
        slots = torch.where(where, strays[drawn], slots)
    return slots


def _listed(order: Tensor, topk: int, kind: str, generator: torch.Generator) -> Tensor:
    row = torch.full((topk,), -1)
    if kind == "nothing":
        return row
    if kind != "holes":
        row[: order.numel()] = order
        return row
    places = torch.randperm(topk, generator=generator)[: order.numel()]
    row[places] = order
    # some of a full list too
    row[torch.rand(topk, generator=generator) < 0.2] = -1
    return row


def indexed_slots(
    runtime: MlaSparseRuntime, batch: LatentBatch, device: torch.device | str
) -> Tensor:
    """The slots that the backend's own indexer picks, on random index keys and queries."""
    case = batch.case
    generator = torch.Generator().manual_seed(case.seed + 2)
    dtype, tokens = batch.query.dtype, batch.query.shape[0]
    query = torch.randn(tokens, INDEX_HEADS, INDEX_DIM, generator=generator).to(dtype).to(device)
    weights = torch.randn(tokens, INDEX_HEADS, generator=generator).to(device)
    key = torch.randn(batch.slots.shape[0], INDEX_DIM, generator=generator).to(dtype).to(device)
    params = Indexing(topk=case.count("topk"), scale=(INDEX_HEADS * INDEX_DIM) ** -0.5)
    shape = index_cache_shape(batch.num_blocks, case.count("page"), INDEX_DIM)
    cache = torch.full(shape, 255, dtype=torch.uint8, device=device)
    metadata = batch.metadata(runtime, batch.slots)
    runtime.write_index(key, cache, metadata, params)
    picks = torch.full((tokens, params.topk), -1, dtype=torch.int32, device=device)
    runtime.select_tokens(query, weights, cache, metadata, params, picks)
    places = (batch.block_table, batch.query_start_loc, batch.seq_lens)
    return to_slots(picks, *places, case.count("page"))
