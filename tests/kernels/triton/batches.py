"""Small paged batches with NaN wherever nothing belongs, and the judgement of an output."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.triton.paged import Knobs, Tiles, paged_attention
from attnctl.ops import paged as specification
from attnctl.ops.compare import compare
from attnctl.ops.paged import Paged, visible

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = Knobs(
    prefill=Tiles(16, 16, 4, 2), wide=Tiles(16, 16, 4, 2), decode=Tiles(16, 16, 4, 2), least_keys=16
)
"""Tiles so small that short sequences have several of them."""


class Batch:
    """Sequences of these lengths in shuffled pages; the last page is a trap full of NaN."""

    def __init__(
        self,
        queries: tuple[int, ...],
        contexts: tuple[int, ...],
        *,
        heads: int = 4,
        kv_heads: int = 2,
        width: int = 16,
        value_width: int | None = None,
        page: int = 16,
        dtype: torch.dtype = torch.float32,
        layout: str = "NHD",
        seed: int = 0,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.queries, self.contexts, self.page = queries, contexts, page
        self.dtype, self.heads, self.width = dtype, heads, width
        value_width = value_width or width
        self.value_width = value_width
        counts = [-(-length // page) for length in contexts]
        pages = sum(counts) + 1
        order = torch.randperm(pages - 1, generator=generator).int()
        self.table = torch.full((len(contexts), max(counts, default=0) + 1), pages - 1).int()
        taken = 0
        for row, count in enumerate(counts):
            self.table[row, :count] = order[taken : taken + count]
            taken += count
        self.query = torch.randn(sum(queries), heads, width, generator=generator).to(dtype)
        self.keys = self.cache(layout, pages, kv_heads, width, generator)
        self.values = self.cache(layout, pages, kv_heads, value_width, generator)
        self.starts = torch.tensor([0, *queries]).cumsum(0).int()
        self.lengths = torch.tensor(contexts).int()

    def cache(
        self, layout: str, pages: int, heads: int, width: int, generator: torch.Generator
    ) -> Tensor:
        whole = empty_cache(layout, pages, self.page, heads, width, self.dtype)
        for row, length in enumerate(self.contexts):
            for position in range(length):
                page = self.table[row, position // self.page]
                value = torch.randn(heads, width, generator=generator)
                whole[page, position % self.page] = value.to(self.dtype)
        return whole

    def poison(self, params: Paged) -> None:
        """NaN in K and V wherever no query of the sequence sees the token."""
        for row, (queries, length) in enumerate(zip(self.queries, self.contexts, strict=True)):
            ranges = None if params.prefix_ranges is None else params.prefix_ranges[row]
            seen = visible(queries, length, params, ranges).any(0)
            for position in (~seen).nonzero().flatten().tolist():
                page = self.table[row, position // self.page]
                self.keys[page, position % self.page] = math.nan
                self.values[page, position % self.page] = math.nan

    def params(self, **changes: Any) -> Paged:
        return Paged(scale=self.width**-0.5, **changes)

    def run(self, params: Paged, knobs: Knobs = SMALL, **bounds: int) -> Tensor:
        """Our output, in a tensor that was full of NaN."""
        out = torch.full((self.query.shape[0], self.heads, self.value_width), math.nan)
        tensors = [
            x.to(DEVICE)
            for x in (
                self.query,
                self.keys,
                self.values,
                self.table,
                self.starts,
                self.lengths,
            )
        ]
        got = paged_attention(
            *tensors,
            on_device(params),
            max_query_len=bounds.get("max_query_len", max(self.queries)),
            max_seq_len=bounds.get("max_seq_len", max(self.contexts)),
            out=out.to(self.dtype).to(DEVICE),
            knobs=knobs,
        )
        return got.cpu()

    def specified(self, params: Paged, dtype: torch.dtype) -> Tensor:
        return specification.paged_attention(
            self.query,
            self.keys,
            self.values,
            self.table,
            self.starts,
            self.lengths,
            params,
            dtype=dtype,
        )


def on_device(params: Paged) -> Paged:
    fields = {name: getattr(params, name) for name in params.__struct_fields__}
    return Paged(**{k: v.to(DEVICE) if isinstance(v, Tensor) else v for k, v in fields.items()})


def assert_right(batch: Batch, params: Paged, knobs: Knobs = SMALL, **bounds: int) -> None:
    """The output stays within the budget that its precision gives."""
    out = batch.run(params, knobs, **bounds)
    exact = batch.specified(params, torch.float64)
    result = compare(out, exact, batch.specified(params, batch.dtype))
    assert result.verdict == "pass", result.detail


def empty_cache(
    layout: str, pages: int, page: int, heads: int, width: int, dtype: torch.dtype
) -> Tensor:
    """[N, P, Hk, width] full of NaN (zeros for integers) with the strides of a layout."""
    sizes = {
        "NHD": (pages, page, heads, width),
        "HND": (pages, heads, page, width),
        "interleaved": (pages, 2, page, heads, width),
    }[layout]
    fill = 0 if dtype == torch.int8 else math.nan
    whole = torch.full(sizes, fill, dtype=torch.float32).to(dtype)
    if layout == "NHD":
        return whole
    return whole.transpose(1, 2) if layout == "HND" else whole[:, 1]
