"""Batches to try paged attention on: a case's text names every length, every option, every layout.

A batch is built as an engine would: pages in a shuffled table, context written by the backend's own
cache write in two steps (what was there, then this batch's tokens), and NaN wherever nothing
belongs, so that a read out of place shows.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.ops.case import Case
from attnctl.ops.paged import Paged, visible
from attnctl.ops.paged_cases import lengths, widths
from attnctl.runtime import BatchRuntime, Metadata

PER_TOKEN = "int8_per_token_head"

KV_SCALES = (0.5, 0.25)
"""k_scale and v_scale of FP8 cases: unequal, so that swapping or dropping one is seen."""


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tokens of a case lie in a paged cache of any operation, on one device.

    slots: [T_all] int64, of every context token of every sequence, in order. block_table:
    [B, pages] int32 over num_blocks pages. query_start_loc: [B + 1] int32. seq_lens: [B] int32.
    """

    case: Case
    slots: Tensor
    block_table: Tensor
    query_start_loc: Tensor
    seq_lens: Tensor
    num_blocks: int

    @property
    def max_query_len(self) -> int:
        return max(lengths(self.case, "queries"), default=0)

    @property
    def max_seq_len(self) -> int:
        return max(lengths(self.case, "contexts"), default=0)

    def metadata(self, runtime: BatchRuntime, slots: Tensor) -> Metadata:
        """The runtime's metadata for a call that writes these slots."""
        return runtime.build_metadata(
            self.query_start_loc,
            self.seq_lens,
            self.block_table,
            slots,
            max_query_len=self.max_query_len,
            max_seq_len=self.max_seq_len,
        )


class Batch(Placed, frozen=True, kw_only=True):
    """One case's tensors.

    query: [T + padding, H, D]. key, value: [T_all, Hk, D or Dv]; new: which rows of them this batch
    brings.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    new: Tensor
    params: Paged


def build(case: Case, device: torch.device | str = "cpu") -> Batch:
    """The tensors of a case. The same case gives the same numbers on every device."""
    generator = torch.Generator().manual_seed(case.seed)
    dtype = getattr(torch, str(case["dtype"]))
    queries, contexts = paired_lengths(case)
    query, key, value = _projections(case, sum(queries), sum(contexts), dtype, generator)
    params = _params(case, contexts, generator, device)
    if case["poison"]:
        value[: sum(contexts)][_hidden(queries, contexts, params)] = torch.nan
    table, slots, blocks = shuffled_pages(contexts, case.count("page"), generator)
    starts = torch.tensor([0, *queries]).cumsum(0).to(torch.int32)
    return Batch(
        case=case,
        query=query.to(device),
        key=key.to(device),
        value=value.to(device),
        new=new_tokens(queries, contexts).to(device),
        slots=slots.to(device),
        block_table=table.to(device),
        query_start_loc=starts.to(device),
        seq_lens=torch.tensor(contexts, dtype=torch.int32, device=device),
        num_blocks=blocks,
        params=_with_scales(params, case, blocks, device),
    )


def _hidden(queries: list[int], contexts: list[int], params: Paged) -> Tensor:
    """[T_all] bool: context tokens that no query token of their sequence sees."""
    hidden = []
    for b, (count, length) in enumerate(zip(queries, contexts, strict=True)):
        ranges = None if params.prefix_ranges is None else params.prefix_ranges[b].cpu()
        hidden.append(~visible(count, length, params, ranges).any(0))
    return torch.cat([torch.zeros(0, dtype=torch.bool), *hidden])


def _with_scales(params: Paged, case: Case, blocks: int, device: torch.device | str) -> Paged:
    """The params with room for a scale per token and head, NaN, where the cache has them."""
    if case["kv_cache_dtype"] != PER_TOKEN:
        return params
    shape = (blocks, case.count("page"), case.count("kv_heads"))
    scales = [torch.full(shape, torch.nan, device=device) for _ in range(2)]
    return msgspec.structs.replace(params, k_scale=scales[0], v_scale=scales[1])


SHARPNESS = 64
"""Logits reach 200: more than e can be raised to in float32."""


def _projections(
    case: Case, new: int, total: int, dtype: torch.dtype, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    heads, kv_heads = case.count("heads"), case.count("kv_heads")
    size, size_v = widths(case)
    padding = case.count("padding")
    parts = (heads * size, kv_heads * size, kv_heads * size_v)
    rows = max(new + padding, total + padding)
    fused = torch.randn(rows, sum(parts), generator=generator).to(dtype)
    query, key, value = fused.split(parts, dim=1)
    query = query[: new + padding].unflatten(1, (heads, size))
    key = key[: total + padding].unflatten(1, (kv_heads, size))
    value = value[: total + padding].unflatten(1, (kv_heads, size_v))
    if not case["fused_qkv"]:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    if case["sharp"]:
        query = query * SHARPNESS
    if padding:
        # finite, so that one stored or computed where only NaN belongs is seen
        query[-padding:], key[-padding:], value[-padding:] = 7.0, 7.0, 7.0
    return query, key, value


def paired_lengths(case: Case) -> tuple[list[int], list[int]]:
    """Query tokens and context of each sequence. ValueError: they do not pair."""
    queries, contexts = lengths(case, "queries"), lengths(case, "contexts")
    if len(queries) != len(contexts) or any(q > c for q, c in zip(queries, contexts, strict=True)):
        raise ValueError(f"{case}: queries must pair with contexts and be no longer")
    return queries, contexts


def new_tokens(queries: list[int], contexts: list[int]) -> Tensor:
    """[T_all] bool: context tokens that are the batch's own, the last of each sequence."""
    new = [torch.arange(c) >= c - q for q, c in zip(queries, contexts, strict=True)]
    return torch.cat(new or [torch.zeros(0, dtype=torch.bool)])


def shuffled_pages(
    contexts: list[int], page: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, int]:
    """A shuffled block table, the slot of every context token, and the number of pages."""
    counts = [-(-length // page) for length in contexts]
    spare = 3
    order = torch.randperm(sum(counts) + spare, generator=generator)
    table = torch.full((len(contexts), max([1, *counts])), 0, dtype=torch.int32)
    slots, taken = [], 0
    for row, (length, count) in enumerate(zip(contexts, counts, strict=True)):
        pages = order[taken : taken + count]
        table[row, :count] = pages.to(torch.int32)
        position = torch.arange(length)
        slots.append(pages[position // page] * page + position % page)
        taken += count
    return table, torch.cat(slots or [torch.zeros(0, dtype=torch.int64)]), sum(counts) + spare


def _params(
    case: Case, contexts: list[int], generator: torch.Generator, device: torch.device | str
) -> Paged:
    params = case.params
    heads = case.count("heads")
    fp8 = str(params["kv_cache_dtype"]).startswith("fp8")
    sinks = torch.randn(heads, generator=generator) if params["sinks"] else None
    slopes = 2.0 ** -(8.0 * torch.arange(1, heads + 1) / heads) if params["alibi"] else None
    ranges = None
    if params["ranges"]:
        rows = [[[c // 4, c // 2], [0, 0]] for c in contexts]
        ranges = torch.tensor(rows, dtype=torch.int32).reshape(len(contexts), 2, 2)

    def there(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(device)

    return Paged(
        scale=case.count("head_size") ** -0.5,
        causal=bool(params["causal"]),
        window=case.positive("window"),
        window_right=case.positive("window_right"),
        chunk=case.positive("chunk"),
        softcap=float(str(params["softcap"])) or None,
        sinks=there(sinks),
        alibi_slopes=there(slopes),
        prefix_ranges=there(ranges),
        k_scale=KV_SCALES[0] if fp8 else 1.0,
        v_scale=KV_SCALES[1] if fp8 else 1.0,
    )
