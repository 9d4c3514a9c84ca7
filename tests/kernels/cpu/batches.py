"""Runs one case of paged attention through kernels of the processor and judges the result."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import torch
from torch import Tensor

from attnctl.kernels.cpu.paged import Kernels
from attnctl.ops import paged_cases, paged_inputs
from attnctl.ops.case import Value
from attnctl.ops.compare import Comparison, compare, guarded, overrun
from attnctl.ops.paged import Paged, paged_attention, visible

CACHE_TYPES = {
    "float32": torch.float32,
    "fp8": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8_per_token_head": torch.int8,
}


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """A batch whose context has been written to a cache: [N, P, Hk, D + Dv], any strides."""

    batch: paged_inputs.Batch
    cache: Tensor
    params: Paged

    @property
    def keys(self) -> Tensor:
        return self.cache[..., : self.batch.key.shape[2]]

    @property
    def values(self) -> Tensor:
        return self.cache[..., self.batch.key.shape[2] :]

    @property
    def tokens(self) -> int:
        return int(self.batch.query_start_loc[-1])


def poisoned(shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> Tensor:
    """A cache of NaN (of 127 where there is no NaN), its heads outside or inside the tokens."""
    n, p, h, w = shape
    sizes = (n, h, p, w) if layout == "HND" else shape
    cache = torch.full(sizes, 127.0 if dtype == torch.int8 else torch.nan).to(dtype)
    return cache.transpose(1, 2) if layout == "HND" else cache


def fill(kernels: Kernels, **changes: Value) -> Filled:
    """The batch of a case, all its context written by these kernels."""
    case = paged_cases.case(**{"page": 32, "layout": "HND", **changes})
    batch = paged_inputs.build(case)
    dtype = CACHE_TYPES.get(str(case["kv_cache_dtype"]), batch.query.dtype)
    width, width_v = paged_cases.widths(case)
    shape = (batch.num_blocks, int(case["page"]), batch.key.shape[1], width + width_v)
    cache, params = poisoned(shape, dtype, str(case["layout"])), batch.params
    if dtype == torch.int8:
        scales = [torch.full(shape[:3], torch.nan) for _ in range(2)]
        params = msgspec.structs.replace(params, k_scale=scales[0], v_scale=scales[1])
    filled = Filled(batch=batch, cache=cache, params=params)
    write(kernels, filled)
    return filled


def write(kernels: Kernels, filled: Filled) -> None:
    batch, params = filled.batch, filled.params
    kernels.write(
        batch.key,
        batch.value,
        filled.keys,
        filled.values,
        batch.slots,
        params.k_scale,
        params.v_scale,
    )


def attend(kernels: Kernels, filled: Filled, params: Paged | None = None) -> Tensor:
    """[T, H, Dv] of the batch's tokens; nothing beyond them, nor around the output, is written."""
    batch = filled.batch
    rows, heads, _ = batch.query.shape
    out, buffer = guarded((rows, heads, batch.value.shape[2]), batch.query.dtype, "cpu")
    kernels.attend(
        batch.query,
        filled.keys,
        filled.values,
        batch.block_table,
        batch.query_start_loc,
        batch.seq_lens,
        params or filled.params,
        out,
    )
    assert not overrun(buffer)
    assert bool(out[filled.tokens :].isnan().all())
    return out[: filled.tokens]


def reference(filled: Filled, dtype: torch.dtype = torch.float64) -> Tensor:
    batch = filled.batch
    rows = paged_attention(
        batch.query,
        filled.keys,
        filled.values,
        batch.block_table,
        batch.query_start_loc,
        batch.seq_lens,
        filled.params,
        dtype=dtype,
    )
    return rows[: filled.tokens]


def judge(kernels: Kernels, **changes: Value) -> Comparison:
    """The kernels' output of a case against the specification."""
    filled = fill(kernels, **changes)
    out = attend(kernels, filled)
    return compare(out, reference(filled), reference(filled, filled.batch.query.dtype))


def poison_unseen(filled: Filled, queries: int, length: int) -> None:
    """NaN in every key and value that no query of the one sequence sees; some are, some are not."""
    ranges = None if filled.params.prefix_ranges is None else filled.params.prefix_ranges[0]
    seen = visible(queries, length, filled.params, ranges).any(0)
    assert 0 < int(seen.sum()) < length
    slots, page = filled.batch.slots[~seen], filled.cache.shape[1]
    filled.cache[slots // page, slots % page] = torch.nan


def outputs_of_seen_nan(kernels: Kernels, dtype: str) -> Iterator[Tensor]:
    """Outputs of decode and of prefill with a NaN in one key, and in one value, that all see."""
    for queries in ("1", "40"):
        for part in (slice(0, 64), slice(64, 128)):
            filled = fill(kernels, dtype=dtype, queries=queries, contexts="100")
            slot = filled.batch.slots[10]
            filled.cache[slot // 32, slot % 32, :, part] = torch.nan
            yield attend(kernels, filled)


def outputs_of_nothing_seen(kernels: Kernels, *, sinks: bool) -> Tensor:
    """Of decode and prefill with a window of no tokens."""
    filled = fill(kernels, dtype="bfloat16", sinks=sinks, queries="1+40", contexts="50+60")
    return attend(kernels, filled, msgspec.structs.replace(filled.params, window=0))
