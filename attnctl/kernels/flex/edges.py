"""Rows of a cache, read in place, that stand in a visited page and that no query token sees.

flex_attention multiplies a masked value by 0, and 0 times NaN is NaN: where the values of such rows
are not finite, they are 0 while the kernel runs, and what they were before afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import torch
from torch import Tensor

from attnctl.kernels.flex.items import Items


class Edges(msgspec.Struct, frozen=True):
    """slots: [E] int64, the unseen rows, page * P + row; repeated so that E is known to the host.

    some: bool, whether there is any; else all slots name one row that is seen.
    """

    slots: Tensor
    some: Tensor


def edges(found: Items, table: Tensor, pages: int, size: int, *, starts: bool) -> Edges:
    """The unseen rows of each sequence's last visited page and, where `starts`, of its first.

    What the tokens of a sequence see together is one interval, as each sees its own position or the
    next: all pages between those two are seen whole. table: [B, p] int64. A row that one sequence
    sees and another does not counts as unseen.
    """
    first, last = ends(found, table.shape[0])
    visited = [(last - 1) // size, *([first // size] if starts else [])]
    logical = torch.stack(visited, dim=1).clamp(0, table.shape[1] - 1)
    row = torch.arange(size, device=table.device)
    position = logical[..., None] * size + row
    low, high = first[:, None, None], last[:, None, None]
    unseen = ((position < low) | (position >= high)) & (high > low)
    slots = table.gather(1, logical.long())[..., None] * size + row
    slots, unseen = slots.flatten().clamp(0, pages * size - 1), unseen.flatten()
    return Edges(
        torch.where(unseen, slots, slots[unseen.to(torch.uint8).argmax()]),
        unseen.any(),
    )


def ends(found: Items, sequences: int) -> tuple[Tensor, Tensor]:
    """The first position that any token of each sequence sees, and past the last: [B] int32."""
    sees = found.live & (found.low < found.high)
    low = torch.where(sees, found.low, 2**30).amin(1)
    high = torch.where(sees, found.high, 0).amax(1)
    first = low.new_full((sequences,), 2**30)
    last = low.new_zeros(sequences)
    return (
        first.scatter_reduce(0, found.sequence, low, "amin"),
        last.scatter_reduce(0, found.sequence, high, "amax"),
    )


@contextmanager
def finite(value: Tensor, unseen: Edges | None) -> Iterator[None]:
    """Within it the unseen rows are finite. value: [1, Hk, M * P, Dv], a view of the cache."""
    if unseen is None:
        yield
        return
    rows = value[0].transpose(0, 1)
    before = rows[unseen.slots]
    # rows that repeat are written with one and the same value, in whatever order
    rows[unseen.slots] = torch.where(unseen.some, before.nan_to_num(0.0, 0.0, 0.0), before)
    try:
        yield
    finally:
        rows[unseen.slots] = before
