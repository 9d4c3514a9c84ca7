"""Ragged lists of cached rows, for kernels that take pages of one token: built without waiting."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.paged.flash import summed
from attnctl.runtime import Metadata


def row_lists(metadata: Metadata, size: int) -> tuple[Tensor, Tensor]:
    """[B + 1] int32 and the rows of all sequences in order, int32, without waiting: the list is as
    long as the lengths' bound, and what lies past the last sequence is 0."""
    starts = summed(metadata.seq_lens)
    table = metadata.block_table
    length = min(metadata.max_seq_len, table.shape[1] * size)
    position = torch.arange(length, device=table.device)
    rows = table[:, position // size].long() * size + position % size
    place = starts[:-1, None] + position
    total = table.shape[0] * length
    place = torch.where(position < metadata.seq_lens[:, None], place, total)
    listed = torch.zeros(total + 1, dtype=torch.int32, device=table.device)
    listed.scatter_(0, place.flatten().long(), rows.flatten().int())
    return starts, listed[:total]


def picked_lists(slots: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """[T + 1] int32 and the named slots of all rows in order, int32, of slots [T, K] int32 that
    name nothing by -1, count [T] of them; the list is as long as all places, 0 past the last."""
    named = slots >= 0
    starts = summed(count)
    place = torch.where(named, starts[:-1, None] + named.cumsum(1) - 1, slots.numel())
    listed = torch.zeros(slots.numel() + 1, dtype=torch.int32, device=slots.device)
    listed.scatter_(0, place.flatten(), slots.flatten())
    return starts, listed[:-1]


def packed_first(slots: Tensor) -> Tensor:
    """Slots [T, K] with -1 behind the others, whose order stays.

    A row without any has slot 0 first, for kernels that refuse empty rows: what they compute of it
    is to be thrown away.
    """
    order = (slots < 0).to(torch.uint8).argsort(dim=1, stable=True)
    packed = slots.gather(1, order)
    packed[:, :1].clamp_(min=0)
    return packed
