"""Batches to try paged attention on: a case's text names every length, every option, every layout.

A batch is built as an engine would: pages in a shuffled table, context written by the backend's own
cache write in two steps (what was there, then this batch's tokens), and NaN wherever nothing
belongs, so that a read out of place shows.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.layer import Layer, Options, layer_of
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.ops.case import Case, Value, make_case
from attnctl.ops.paged import Paged

OP = "paged"

DEFAULTS: dict[str, Value] = {
    "queries": "1+5+33",
    "contexts": "17+5+64",
    "heads": 8,
    "kv_heads": 2,
    "head_size": 64,
    "head_size_v": 0,
    "page": 16,
    "causal": True,
    "window": 0,
    "window_right": 0,
    "chunk": 0,
    "softcap": 0.0,
    "sinks": False,
    "alibi": False,
    "ranges": False,
    "dtype": "float16",
    "kv_cache_dtype": "auto",
    "layout": "NHD",
    "fused_qkv": False,
    "padding": 0,
}
"""queries, contexts: tokens per sequence, joined by +. head_size_v 0: as head_size. window,
window_right, chunk, softcap 0: none. fused_qkv: Q, K and V are strided views of one projection.
padding: rows past the last sequence, with slot -1 and NaN in them."""

KV_SCALES = (0.5, 0.25)
"""k_scale and v_scale of FP8 cases: unequal, so that swapping or dropping one is seen."""


def case(**changes: Value) -> Case:
    return make_case(OP if not changes.get("head_size_v") else "diffkv", DEFAULTS, **changes)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One case's tensors, on one device.

    query: [T + padding, H, D]. key, value: [T_all, Hk, D or Dv]: every context token of every
    sequence, in order; new: which rows of them this batch brings. slots: [T_all] int64.
    block_table: [B, pages] int32 over num_blocks pages. query_start_loc: [B + 1] int32.
    """

    case: Case
    query: Tensor
    key: Tensor
    value: Tensor
    new: Tensor
    slots: Tensor
    block_table: Tensor
    query_start_loc: Tensor
    seq_lens: Tensor
    num_blocks: int
    params: Paged

    @property
    def max_query_len(self) -> int:
        return max(lengths(self.case, "queries"), default=0)

    @property
    def max_seq_len(self) -> int:
        return max(lengths(self.case, "contexts"), default=0)


def lengths(case: Case, name: str) -> list[int]:
    return [int(part) for part in str(case[name]).split("+") if part]


def widths(case: Case) -> tuple[int, int]:
    """D and Dv."""
    size = int(case["head_size"])  # type: ignore[arg-type]
    return size, int(case["head_size_v"] or size)  # type: ignore[arg-type]


def layer_for(case: Case) -> Layer:
    """The demands that this case makes of a backend: what its rules are asked about."""
    params = case.params
    size, size_v = widths(case)
    window, right = params["window"] or None, params["window_right"] or None
    kind = "encoder_self" if not params["causal"] else "sliding" if window else "full"
    group = LayerGroup(
        kind="chunked" if params["chunk"] else kind,  # type: ignore[arg-type]
        layers=(0,),
        num_heads=params["heads"],  # type: ignore[arg-type]
        num_kv_heads=params["kv_heads"],  # type: ignore[arg-type]
        head_size=size,
        head_size_v=size_v if size_v != size else None,
        window=window,  # type: ignore[arg-type]
        window_right=right,  # type: ignore[arg-type]
        chunk=params["chunk"] or None,  # type: ignore[arg-type]
        sinks=bool(params["sinks"]),
        softcap=params["softcap"] or None,  # type: ignore[arg-type]
        alibi=bool(params["alibi"]),
        prefix_lm=bool(params["ranges"]),
    )
    spec = ModelSpec(model_type="case", groups=(group,), dtype=str(params["dtype"]))
    options = Options(
        kv_cache_dtype=str(params["kv_cache_dtype"]),
        block_size=params["page"],  # type: ignore[arg-type]
    )
    return layer_of(spec, group, options)


def build(case: Case, device: torch.device | str = "cpu") -> Batch:
    """The tensors of a case. The same case gives the same numbers on every device."""
    generator = torch.Generator().manual_seed(case.seed)
    dtype = getattr(torch, str(case["dtype"]))
    queries, contexts = lengths(case, "queries"), lengths(case, "contexts")
    if len(queries) != len(contexts) or any(q > c for q, c in zip(queries, contexts, strict=True)):
        raise ValueError(f"{case}: queries must pair with contexts and be no longer")
    query, key, value = _projections(case, sum(queries), sum(contexts), dtype, generator)
    table, slots, blocks = _pages(contexts, int(case["page"]), generator)  # type: ignore[arg-type]
    new = torch.cat(
        [torch.arange(c) >= c - q for q, c in zip(queries, contexts, strict=True)]
        or [torch.zeros(0, dtype=torch.bool)]
    )
    starts = torch.tensor([0, *queries]).cumsum(0).to(torch.int32)
    return Batch(
        case=case,
        query=query.to(device),
        key=key.to(device),
        value=value.to(device),
        new=new.to(device),
        slots=slots.to(device),
        block_table=table.to(device),
        query_start_loc=starts.to(device),
        seq_lens=torch.tensor(contexts, dtype=torch.int32, device=device),
        num_blocks=blocks,
        params=_params(case, contexts, generator, device),
    )


def _projections(
    case: Case, new: int, total: int, dtype: torch.dtype, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    heads, kv_heads = int(case["heads"]), int(case["kv_heads"])  # type: ignore[arg-type]
    size, size_v = widths(case)
    padding = int(case["padding"])  # type: ignore[arg-type]
    parts = (heads * size, kv_heads * size, kv_heads * size_v)
    rows = max(new + padding, total + padding)
    fused = torch.randn(rows, sum(parts), generator=generator).to(dtype)
    query, key, value = fused.split(parts, dim=1)
    query = query[: new + padding].unflatten(1, (heads, size))
    key = key[: total + padding].unflatten(1, (kv_heads, size))
    value = value[: total + padding].unflatten(1, (kv_heads, size_v))
    if not case["fused_qkv"]:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    if padding:
        for tensor in (query, key, value):
            tensor[-padding:] = torch.nan
    return query, key, value


def _pages(
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
    heads = int(params["heads"])  # type: ignore[arg-type]
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
        scale=int(params["head_size"]) ** -0.5,  # type: ignore[arg-type]
        causal=bool(params["causal"]),
        window=params["window"] or None,  # type: ignore[arg-type]
        window_right=params["window_right"] or None,  # type: ignore[arg-type]
        chunk=params["chunk"] or None,  # type: ignore[arg-type]
        softcap=params["softcap"] or None,  # type: ignore[arg-type]
        sinks=there(sinks),
        alibi_slopes=there(slopes),
        prefix_ranges=there(ranges),
        k_scale=KV_SCALES[0] if fp8 else 1.0,
        v_scale=KV_SCALES[1] if fp8 else 1.0,
    )
