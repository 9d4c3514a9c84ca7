"""Where the keys and values are: in the cache as it lies, or in a packed copy of the batch's pages.

In place, flex_attention's context is the whole cache and a table says which position of a sequence
each page holds. It reads nothing twice, and asks for a cache whose pages follow each other by one
stride, in the query's dtype. A page may stand in the tables of several sequences, and once in each.
Rows of its pages that no query token sees are made finite while the kernel runs (edges.py).

The packed copy takes any strides and dtypes, and keeps values that no query token sees (NaN or not)
away from the product. On a processor it is the better choice: flex_attention's C++ kernel wants
block indices for all of its context, and no copy of a cache to the device of a kernel is saved.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.kernels.flex.edges import Edges, edges, ends
from attnctl.kernels.flex.items import Items
from attnctl.kernels.paged.packed_cache import views
from attnctl.runtime import Metadata


class Pages(msgspec.Struct, frozen=True):
    """The context of a batch: M pages, M at least 2.

    table: [B, p] int64, the page of each sequence's p-th. logical: [B, M] int32, the inverse, -1
    where none. Of the packed copy also: source: [M] int64, the cache's page; seen: [M, P] bool,
    whether any token sees the row. Of the cache in place: unseen, the rows to make finite.
    """

    table: Tensor
    logical: Tensor
    source: Tensor | None = None
    seen: Tensor | None = None
    unseen: Edges | None = None


def in_place_possible(cache: Tensor, dtype: torch.dtype) -> bool:
    """Whether flex_attention reaches all of it: one stride, one dtype, 32-bit offsets."""
    pages, size = cache.shape[:2]
    even = cache.stride(0) == size * cache.stride(1)
    return cache.dtype is dtype and pages > 1 and even and pages * cache.stride(0) < FIRST_FAR


FIRST_FAR = 2**31
"""The first element that a 32-bit offset does not reach."""


def in_place(
    metadata: Metadata, found: Items, pages: int, size: int, *, starts: bool = True
) -> Pages:
    """The cache itself, of so many pages. starts: whether a mask may hide a context's beginning."""
    held = _held(metadata, size)
    table = metadata.block_table[:, : held.shape[1]].long()
    unseen = edges(found, table, pages, size, starts=starts)
    return Pages(table, _inverse(table, held, pages), unseen=unseen)


def packed(metadata: Metadata, found: Items, size: int) -> Pages:
    """A copy of the batch's pages, in order."""
    held = _held(metadata, size)
    source = metadata.block_table[:, : held.shape[1]].long()
    position = torch.arange(held.shape[1] * size, device=held.device).view(-1, size)
    low, high = ends(found, held.shape[0])
    seen = (position >= low[:, None, None]) & (position < high[:, None, None])
    if held.device.type == "cpu":
        # nothing waits here, so that the copy is as long as the batch and not as its bound
        source, seen, order = source[held], seen[held], held.flatten().cumsum(0) - 1
    else:
        # what stands in the table past a sequence's pages need not be a page
        source, seen = torch.where(held, source, 0).flatten(), seen.flatten(0, 1)
        order = torch.arange(held.numel(), device=held.device)
    short = max(0, 2 - source.shape[0])
    source, seen = _pad(source, short), _pad(seen, short)
    order = order.view_as(held).clamp(min=0)
    return Pages(order, _inverse(order, held, source.shape[0]), source, seen)


def keys_and_values(
    cache: Tensor, width: int, pages: Pages, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """[1, Hk, M * P, D] and [1, Hk, M * P, Dv]: views of the cache, or the packed copy."""
    if pages.source is None or pages.seen is None:
        key, value = views(cache, width)
    else:
        key, value = views(cache[pages.source], width)
        key = key.to(dtype)
        value = torch.where(pages.seen[..., None, None], value.to(dtype), 0)
    return _flat(key), _flat(value)


def _flat(part: Tensor) -> Tensor:
    rows = part.flatten(0, 1)
    if rows.shape[1] == 1:
        # a head that is alone may lie at any stride, and a kernel is compiled for each
        rows = rows[:, 0].unsqueeze(1)
    return rows.transpose(0, 1)[None]


def _held(metadata: Metadata, size: int) -> Tensor:
    """Which entries of the block table are pages of the batch: [B, p] bool."""
    count = max(1, -(-metadata.max_seq_len // size))
    index = torch.arange(min(count, metadata.block_table.shape[1]), device=metadata.seq_lens.device)
    return index * size < metadata.seq_lens[:, None]


def _inverse(table: Tensor, held: Tensor, pages: int) -> Tensor:
    index = torch.arange(held.shape[1], dtype=torch.int32, device=held.device)
    logical = torch.full((held.shape[0], pages + 1), -1, dtype=torch.int32, device=held.device)
    # what is not held goes to a column that is cut off
    logical.scatter_(1, torch.where(held, table, pages), index.expand_as(table))
    return logical[:, :pages]


def _pad(tensor: Tensor, rows: int) -> Tensor:
    return tensor if rows == 0 else torch.cat([tensor, tensor.new_zeros(rows, *tensor.shape[1:])])
