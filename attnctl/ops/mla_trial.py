"""Tries one backend on one case of latent attention, as a user's program would call it."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.latent_runtime import MlaRuntime
from attnctl.ops.case import Case
from attnctl.ops.compare import Comparison, fault, guarded, overrun
from attnctl.ops.lse_check import compare_states
from attnctl.ops.mla import latent_attention, uncompressed_attention
from attnctl.ops.mla_inputs import (
    LatentBatch,
    build,
    cache_fault,
    narrowed,
    stored_rows,
    written_cache,
)


def try_case(runtime: MlaRuntime, case: Case, device: torch.device | str = "cpu") -> Comparison:
    """Writes the cache, runs the case's form, and compares both with the specification."""
    batch = build(case, device)
    stored = stored_rows(batch)
    shape = runtime.cache_shape(
        batch.num_blocks, case.count("page"), case.count("lora"), case.count("rope")
    )
    cache = written_cache(runtime, batch, shape, stored, device)
    differs = cache_fault(cache, stored)
    if differs:
        return fault("wrong", differs)
    absorbed = case["form"] == "absorbed"
    tokens, heads, _ = batch.query.shape
    width = case.count("lora") if absorbed else case.count("v")
    out, buffer = guarded((tokens, heads, width), batch.query.dtype, device)
    lse, lse_buffer = guarded((tokens, heads), torch.float32, device)
    metadata = batch.metadata(runtime, batch.steps()[1][1])
    if absorbed:
        runtime.forward(batch.query, cache, metadata, batch.params, out, lse)
    else:
        weights = (batch.w_uk, batch.w_uv)
        chunk = case.count("chunk")
        runtime.prefill(
            batch.query, cache, metadata, batch.params, *weights, out=out, lse=lse, chunk=chunk
        )
    stray = stray_writes(out, lse, batch.live, buffer, lse_buffer)
    if stray:
        return fault("overrun", stray)
    live = slice(batch.live)
    query = batch.query[live]
    rounded = narrowed(query, runtime, cache) if absorbed else query
    return compare_states(
        out[live],
        lse[live],
        specified(batch, query, stored, torch.float64),
        specified(batch, rounded, stored, out.dtype),
    )


def stray_writes(out: Tensor, lse: Tensor, live: int, *buffers: Tensor) -> str:
    """What was written where nothing may be: beyond a tensor, or in rows of no sequence."""
    for buffer in buffers:
        stray = overrun(buffer)
        if stray:
            return stray
    untouched = torch.isnan(out[live:]).all() and torch.isnan(lse[live:]).all()
    return "" if bool(untouched) else "rows of no sequence were written"


def specified(
    batch: LatentBatch, query: Tensor, stored: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of the specification, on the processor."""
    query = query.cpu()
    places = (batch.block_table.cpu(), batch.query_start_loc.cpu(), batch.seq_lens.cpu())
    if batch.case["form"] == "absorbed":
        return latent_attention(query, stored, *places, batch.params, dtype=dtype)
    weights = (batch.w_uk.cpu(), batch.w_uv.cpu())
    chunk = batch.case.count("chunk")
    return uncompressed_attention(
        query, stored, *places, *weights, batch.params, chunk=chunk, dtype=dtype
    )
