"""Tries one backend on one case of paged attention, as a user's program would call it."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.ops.case import Case
from attnctl.ops.compare import Comparison, compare, fault, guarded, overrun
from attnctl.ops.paged import Paged, paged_attention
from attnctl.ops.paged_cases import widths
from attnctl.ops.paged_inputs import PER_TOKEN, Batch, build
from attnctl.runtime import PagedRuntime

STORAGE = {
    "fp8": torch.float8_e4m3fn,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    PER_TOKEN: torch.int8,
}

UNWRITTEN = -128
"""What an int8 cache is filled with: no row has it, as their largest is 127 either way."""


def storage_dtype(case: Case) -> torch.dtype:
    """The dtype in which the case's cache is stored."""
    name = str(case["kv_cache_dtype"])
    if name == "auto":
        name = str(case["dtype"])
    found: torch.dtype = STORAGE.get(name) or getattr(torch, name)
    return found


def try_case(runtime: PagedRuntime, case: Case, device: torch.device | str = "cpu") -> Comparison:
    """Writes the cache, runs forward, and compares both with the specification."""
    batch = build(case, device)
    cache = empty_cache(runtime, batch, device)
    _write(runtime, batch, cache)
    if cache.dtype is torch.int8:
        differs, (keys, values) = _rounded_fault(cache, batch), _halves(cache, batch.case)
    else:
        keys, values = _specified_cache(batch)
        differs = _cache_fault(cache, keys, values, batch)
    if differs:
        return fault("wrong", differs)
    tokens, heads = batch.query.shape[0], batch.query.shape[1]
    out, buffer = guarded((tokens, heads, widths(case)[1]), batch.query.dtype, device)
    metadata = batch.metadata(runtime, _new_slots(batch))
    runtime.forward(batch.query, cache, metadata, batch.params, out)
    stray = overrun(buffer)
    live = tokens - case.count("padding")
    if stray or not bool(torch.isnan(out[live:]).all()):
        return fault("overrun", stray or "rows of no sequence were written")
    # a kernel whose products are narrower than its query says so: its budget is that precision's
    asked = getattr(runtime, "query_dtype", None)
    narrow = batch.query.dtype if asked is None else asked(batch.query, cache)
    return _judge(out[:live], batch, keys, values, live, narrow)


def _judge(
    out: Tensor, batch: Batch, keys: Tensor, values: Tensor, live: int, narrow: torch.dtype
) -> Comparison:
    def specified(dtype: torch.dtype) -> Tensor:
        params = _on_cpu(batch.params)
        query = batch.query[:live].cpu()
        if dtype is not torch.float64:
            query = query.to(narrow).to(query.dtype)
        return paged_attention(
            query,
            keys,
            values,
            batch.block_table.cpu(),
            batch.query_start_loc.cpu(),
            batch.seq_lens.cpu(),
            params,
            dtype=dtype,
        )

    return compare(out.cpu(), specified(torch.float64), specified(out.dtype))


def _on_cpu(params: Paged) -> Paged:
    moved = {
        name: value.cpu()
        for name in params.__struct_fields__
        if isinstance(value := getattr(params, name), Tensor)
    }
    return msgspec.structs.replace(params, **moved)


def empty_cache(runtime: PagedRuntime, batch: Batch, device: torch.device | str) -> Tensor:
    """A cache in the case's layout, logical order [N, P, Hk, D + Dv]: NaN, or UNWRITTEN in int8."""
    case = batch.case
    size, size_v = widths(case)
    shape = runtime.cache_shape(
        batch.num_blocks,
        case.count("page"),
        case.count("kv_heads"),
        size,
        size_v,
    )
    if case["layout"] == "HND":
        blocks, page, heads, width = shape
        cache = torch.empty(blocks, heads, page, width, dtype=storage_dtype(case), device=device)
        cache = cache.transpose(1, 2)
    else:
        cache = torch.empty(shape, dtype=storage_dtype(case), device=device)
    return cache.copy_(torch.full((), UNWRITTEN if cache.dtype is torch.int8 else torch.nan))


def _new_slots(batch: Batch) -> Tensor:
    """This batch's slots, with -1 for the padding rows."""
    padding = batch.case.count("padding")
    none = torch.full((padding,), -1, dtype=torch.int64, device=batch.slots.device)
    return torch.cat([batch.slots[batch.new], none])


def _write(runtime: PagedRuntime, batch: Batch, cache: Tensor) -> None:
    """What was there before in one call, this batch's tokens in another."""
    total = batch.slots.shape[0]
    old = ~batch.new
    padded = torch.cat([batch.new, batch.new.new_ones(batch.key.shape[0] - total)])
    for rows, slots in ((_rows(old, batch), batch.slots[old]), (padded, _new_slots(batch))):
        metadata = batch.metadata(runtime, slots)
        runtime.write_cache(batch.key[rows], batch.value[rows], cache, metadata, batch.params)


def _rows(old: Tensor, batch: Batch) -> Tensor:
    """A mask over key's rows, padding rows included and false."""
    missing = batch.key.shape[0] - old.shape[0]
    return torch.cat([old, old.new_zeros(missing)])


def _specified_cache(batch: Batch) -> tuple[Tensor, Tensor]:
    """What the cache holds after the writes, K and V apart: [N, P, Hk, D] and [N, P, Hk, Dv]."""
    page = batch.case.count("page")
    dtype = storage_dtype(batch.case)
    total = batch.slots.shape[0]
    stored = []
    scales = (batch.params.k_scale, batch.params.v_scale)
    for rows, scale in zip((batch.key, batch.value), scales, strict=True):
        whole = torch.full((batch.num_blocks * page, *rows.shape[1:]), torch.nan)
        value: Any = rows[:total].cpu().float() / scale
        whole[batch.slots.cpu()] = value.to(dtype).float()
        stored.append(whole.unflatten(0, (batch.num_blocks, page)).double())
    return stored[0], stored[1]


def _cache_fault(cache: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> str:
    """Where the cache differs from the specification, "" where it does not."""
    size, _ = widths(batch.case)
    held = cache.detach().cpu().to(torch.float64)
    for name, found, wanted in (("K", held[..., :size], keys), ("V", held[..., size:], values)):
        same = torch.isclose(found, wanted, rtol=0, atol=0, equal_nan=True)
        if not bool(same.all()):
            block, offset, head, _ = (~same).nonzero()[0].tolist()
            count = int((~same).sum())
            return (
                f"{name} cache: {count} elements differ, first in slot {block}:{offset} head {head}"
            )
    return ""


def _halves(cache: Tensor, case: Case) -> tuple[Tensor, Tensor]:
    """K and V of what the cache holds, on the host."""
    held, (size, _) = cache.detach().cpu().double(), widths(case)
    return held[..., :size], held[..., size:]


def _rounded_fault(cache: Tensor, batch: Batch) -> str:
    """Where an int8 cache is not each row's own scale times the nearest whole numbers.

    A tie may be rounded either way: the kernels' hardware differs in that.
    """
    total, slots = batch.slots.shape[0], batch.slots.cpu()
    sides = (batch.key, batch.value)
    scales = (batch.params.k_scale, batch.params.v_scale)
    for name, rows, held, scale in zip(
        "KV", sides, _halves(cache, batch.case), scales, strict=True
    ):
        assert isinstance(scale, Tensor)
        found, numbers = scale.detach().cpu().flatten(0, 1), held.flatten(0, 1)
        value = rows[:total].cpu().double()
        wanted = (value.abs().amax(-1) / 127).clamp(min=1e-10)
        if not torch.allclose(found[slots].double(), wanted, rtol=1e-5):
            return f"{name} cache: a scale is not its row's largest magnitude / 127"
        off = (numbers[slots] * wanted[..., None] - value).abs()
        if not bool((off <= 0.501 * wanted[..., None]).all()):
            return f"{name} cache: a number is not the nearest to its value over the scale"
        free = torch.ones(found.shape[0], dtype=torch.bool)
        free[slots] = False
        if not bool((numbers[free] == UNWRITTEN).all() and found[free].isnan().all()):
            return f"{name} cache: a slot of no token was written"
    return ""
