"""A batch's states taken out of the pool for a kernel that knows no slots, and put back."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attnctl.kernels.rivals import refuse
from attnctl.runtime import StateMetadata


class Rows(NamedTuple):
    """initial: [B, ...] states, zero for first chunks and padding. live: [B] bool, rows whose
    state is kept. slots: [B]. owner: [T], the row of each token. starts: [B + 1] int64."""

    initial: Tensor
    live: Tensor
    slots: Tensor
    owner: Tensor
    starts: Tensor


def take(kernel: str, pool: Tensor, metadata: StateMetadata, tokens: int) -> Rows:
    """The rows of a batch. InputError: one is under verification (waits for the device)."""
    under = metadata.speculative is not None and bool(metadata.speculative.any())
    refuse(kernel, under, "it keeps a row's last state, not one for each drafted token")
    starts, slots = metadata.query_start_loc.long(), metadata.state_indices.long()
    source = slots[:, 0]
    if metadata.num_accepted is not None:
        source = slots.gather(1, metadata.num_accepted.long()[:, None] - 1)[:, 0]
    live = (slots[:, 0] >= 0) & (starts.diff() > 0)
    known = metadata.has_initial_state & live & (source >= 0)
    initial = pool[source.clamp(min=0)]
    # not a product: a fresh slot may hold NaN
    initial = torch.where(_wide(known, initial), initial, torch.zeros_like(initial))
    place = torch.arange(tokens, device=pool.device)
    owner = torch.searchsorted(starts, place, right=True) - 1
    return Rows(initial, live, slots[:, 0], owner, starts)


def keep(pool: Tensor, rows: Rows, final: Tensor) -> None:
    """Puts every live row's state in its slot, and touches no other slot.

    A row that is not live repeats the first live row's write, so that nothing waits for the device.
    """
    any_live, first = rows.live.any(), rows.live.int().argmax()
    slot = torch.where(any_live, rows.slots[first], 0)
    value = torch.where(any_live, final[first].to(pool.dtype), pool[0])
    target = torch.where(rows.live, rows.slots, slot)
    pool[target] = torch.where(_wide(rows.live, final), final.to(pool.dtype), value)


def put(out: Tensor, found: Tensor, rows: Rows) -> None:
    """Copies the outputs of live rows' tokens; others stay as they are."""
    count = rows.live.shape[0]
    live = (rows.owner < count) & rows.live[rows.owner.clamp(max=count - 1)]
    out.copy_(torch.where(_wide(live, found), found.to(out.dtype), out))


def _wide(mask: Tensor, value: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (value.dim() - 1))
