"""Where the keys and values are: in the cache as it lies, or in a packed copy of the batch's pages.

In place, flex_attention's context is the whole cache and a table says which position of a sequence
each page holds. It reads nothing twice, and asks for a cache whose pages follow each other by one
stride, in the query's dtype. A page may stand in the tables of several sequences, and once in each.
flex_attention multiplies a masked value by 0, so values beyond a sequence's end must be finite:
NaN there is replaced in the cache, in slots that no token holds.

The packed copy takes any strides and dtypes, and keeps values that no query token sees (NaN or not)
away from the product. On a processor it is the better choice: flex_attention's C++ kernel wants
block indices for all of its context, and no copy of a cache to the device of a kernel is saved.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.kernels.flex.items import Items
from attnctl.kernels.packed_cache import views
from attnctl.runtime import Metadata


class Pages(msgspec.Struct, frozen=True):
    """key: [1, Hk, M * P, D], value: [1, Hk, M * P, Dv] over M pages, M at least 2. table: [B, p]
    int64, the page of each sequence's p-th. logical: [B, M] int32, the inverse, -1 where none."""

    key: Tensor
    value: Tensor
    table: Tensor
    logical: Tensor


def in_place_possible(cache: Tensor, dtype: torch.dtype) -> bool:
    pages, size = cache.shape[:2]
    return cache.dtype is dtype and pages > 1 and cache.stride(0) == size * cache.stride(1)


def in_place(cache: Tensor, width: int, metadata: Metadata) -> Pages:
    """The cache itself. Makes the slots after each sequence's last token finite."""
    _finite_ends(views(cache, width)[1], metadata)
    key, value = (part.flatten(0, 1).transpose(0, 1)[None] for part in views(cache, width))
    held = _held(metadata, cache.shape[1])
    table = metadata.block_table[:, : held.shape[1]].long()
    return Pages(key, value, table, _inverse(table, held, cache.shape[0]))


def packed(
    cache: Tensor, width: int, metadata: Metadata, found: Items, dtype: torch.dtype
) -> Pages:
    """A copy of the batch's pages, in order."""
    size = cache.shape[1]
    held = _held(metadata, size)
    table = metadata.block_table[:, : held.shape[1]].long()
    position = torch.arange(held.shape[1] * size, device=cache.device).view(-1, size)
    low, high = _ends(found, held.shape[0])
    seen = (position >= low[:, None, None]) & (position < high[:, None, None])
    if cache.device.type == "cpu":
        # nothing waits here, so that the copy is as long as the batch and not as its bound
        table, seen, order = table[held], seen[held], held.flatten().cumsum(0) - 1
    else:
        table, seen, order = table.flatten(), seen.flatten(0, 1), torch.arange(held.numel())
    short = max(0, 2 - table.shape[0])
    table, seen = _pad(table, short), _pad(seen, short)
    stored_key, stored_value = views(cache[table], width)
    value = torch.where(seen[..., None, None], stored_value.to(dtype), 0)
    order = order.to(cache.device).view_as(held).clamp(min=0)
    return Pages(
        stored_key.to(dtype).flatten(0, 1).transpose(0, 1)[None],
        value.flatten(0, 1).transpose(0, 1)[None],
        order,
        _inverse(order, held, table.shape[0]),
    )


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


def _ends(found: Items, sequences: int) -> tuple[Tensor, Tensor]:
    """The first position that any token of each sequence sees, and past the last: [B] int32."""
    low = torch.where(found.live, found.low, 2**30).amin(1)
    high = found.high.amax(1)
    first = low.new_full((sequences,), 2**30)
    last = low.new_zeros(sequences)
    return (
        first.scatter_reduce(0, found.sequence, low, "amin"),
        last.scatter_reduce(0, found.sequence, high, "amax"),
    )


def _finite_ends(value: Tensor, metadata: Metadata) -> None:
    size = value.shape[1]
    lengths, table = metadata.seq_lens.long(), metadata.block_table
    # an empty sequence holds no page: it repeats what the longest one does
    own = torch.arange(lengths.shape[0], device=lengths.device)
    same_as = torch.where(lengths > 0, own, lengths.argmax())
    lengths, table = lengths[same_as], table[same_as]
    last = ((lengths - 1) // size).clamp(min=0)
    page = table.gather(1, last[:, None])[:, 0].long()
    offset = torch.arange(size, device=value.device)
    free = offset >= (lengths - last * size)[:, None]
    rows = value[page]
    value[page] = torch.where(free[..., None, None], rows.nan_to_num(0.0, 0.0, 0.0), rows)


def _pad(tensor: Tensor, rows: int) -> Tensor:
    return tensor if rows == 0 else torch.cat([tensor, tensor.new_zeros(rows, *tensor.shape[1:])])
