"""Ragged lists of cached rows, for kernels that take pages of one token: built without waiting."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.flash import summed
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


def picked_lists(slots: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """[T + 1] int32 and the valid slots of all rows in order, int32, of slots and valid [T, K]; as
    many as all of them, and what lies past the last valid one is 0."""
    starts = summed(valid.sum(1))
    place = torch.where(valid, starts[:-1, None] + valid.cumsum(1) - 1, slots.numel())
    listed = torch.zeros(slots.numel() + 1, dtype=torch.int32, device=slots.device)
    listed.scatter_(0, place.flatten(), slots.flatten())
    return starts, listed[:-1]


def packed_first(slots: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Slots [T, K] with the valid ones first, in their order, and how many they are, [T] int32.

    A row without any has slot 0 first and counts one, for kernels that refuse empty rows: what
    they compute of it is to be thrown away.
    """
    order = valid.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    packed = torch.where(valid, slots, -1).gather(1, order)
    count = valid.sum(1, dtype=torch.int32)
    if slots.shape[1]:
        packed[:, 0] = packed[:, 0].clamp(min=0)
    return packed, count.clamp(min=1)
