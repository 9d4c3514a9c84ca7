"""Which pages each item visits: flex_attention's block lists, by arithmetic on the intervals."""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.kernels.flex.items import FAR, Items
from attnctl.kernels.flex.pages import Pages


class Blocks(msgspec.Struct, frozen=True):
    """Pages that an item's rows see in part (the mask is applied) and whole (it is not).

    part_count, full_count: [W, 1, 1] int32. part, full: [W, 1, 1, columns] int32, entries past the
    count without meaning.
    """

    part_count: Tensor
    part: Tensor
    full_count: Tensor
    full: Tensor


def blocks(found: Items, pages: Pages, size: int) -> Blocks:
    """The lists of every item. What a row sees is one interval, so an item's pages are one run.

    The run has a middle of pages that all its rows see whole; before and after lie partial ones.
    """
    low, high, live = found.low, found.high, found.live
    first = torch.where(live, low, FAR).amin(1).clamp(max=FAR) // size
    last = (high.amax(1) + size - 1) // size
    first = torch.minimum(first, last)
    inner = (torch.where(live, low, 0).amax(1) + size - 1) // size
    outer = torch.where(live, high, FAR).amin(1) // size
    inner = torch.minimum(torch.maximum(inner, first), last)
    outer = torch.maximum(torch.minimum(outer, last), inner)
    columns = pages.table.shape[1]
    index = torch.arange(columns, device=low.device)
    before = (inner - first)[:, None]
    part = torch.where(index < before, first[:, None] + index, outer[:, None] + index - before)
    table = pages.table[found.sequence]
    return Blocks(
        _count(last - first - (outer - inner)),
        _listed(part, table, pages),
        _count(outer - inner),
        _listed(inner[:, None] + index, table, pages),
    )


def _count(count: Tensor) -> Tensor:
    return count.int()[:, None, None]


def _listed(logical: Tensor, table: Tensor, pages: Pages) -> Tensor:
    columns = table.shape[1]
    chosen = table.gather(1, logical.long().clamp(0, columns - 1)).int()
    # the C++ kernel wants as many columns as there are pages, the GPU's no more than are listed
    total = pages.logical.shape[1] if table.device.type == "cpu" else max(2, columns)
    if columns < total:
        chosen = torch.nn.functional.pad(chosen, (0, total - columns))
    return chosen[:, None, None, :total]
