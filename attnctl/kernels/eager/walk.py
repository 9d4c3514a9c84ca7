"""The walk over a packed batch: all sequences advance together, the longest ones last to stop."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnctl.runtime import StateMetadata

Step = Callable[[Tensor, Tensor], None]
"""Advances states [rows, ...] in place by the tokens [rows], whose outputs it writes."""


class Rows:
    """The sequences that have tokens and are not padding, longest first."""

    def __init__(self, metadata: StateMetadata) -> None:
        starts = metadata.query_start_loc.long()
        lengths = starts[1:] - starts[:-1]
        live = ((lengths > 0) & (metadata.state_indices[:, 0] >= 0)).nonzero()[:, 0]
        self.index = live[lengths[live].argsort(descending=True, stable=True)]
        self.starts = starts[:-1][self.index]
        self.lengths = lengths[self.index]
        self.slots = metadata.state_indices.long()[self.index]
        self.known = metadata.has_initial_state[self.index].bool()
        none = torch.zeros_like(self.known)
        verified = metadata.speculative
        self.verified = none if verified is None else verified[self.index].bool()
        accepted = metadata.num_accepted
        ones = torch.ones_like(self.starts)
        if accepted is None:
            self.accepted = ones
        else:
            # where there is no state it says nothing
            self.accepted = torch.where(self.known, accepted.long()[self.index], ones)

    def __len__(self) -> int:
        return int(self.index.shape[0])


SMALL = 32768
"""Elements up to which torch's sums stay in one thread; its products wake all of them for a few."""


def contract(state: Tensor, row: Tensor) -> Tensor:
    """The state's last dimension against a row: [..., V, D], [..., D] -> [..., V]."""
    if state.numel() <= SMALL:
        return (state * row[..., None, :]).sum(-1)
    return torch.matmul(state, row[..., None])[..., 0]


def walk(state: Tensor, metadata: StateMetadata, step: Step) -> None:
    """Carries each row's state through its tokens and leaves what is to be kept in its slots."""
    rows = Rows(metadata)
    if not len(rows):
        return
    carried = _initial(state, rows)
    lengths = rows.lengths.tolist()
    active = len(lengths)
    verifying = bool(rows.verified.any())
    for t in range(lengths[0]):
        while lengths[active - 1] <= t:
            active -= 1
        step(carried[:active], rows.starts[:active] + t)
        if verifying and t < rows.slots.shape[1]:
            keep = rows.verified[:active] & (rows.slots[:active, t] >= 0)
            state[rows.slots[:active, t][keep]] = carried[:active][keep].to(state.dtype)
    state[rows.slots[~rows.verified, 0]] = carried[~rows.verified].to(state.dtype)


def _initial(state: Tensor, rows: Rows) -> Tensor:
    """Float32 states [rows, ...]: from the column of the last accepted token, or zero."""
    carried = torch.zeros(len(rows), *state.shape[1:], dtype=torch.float32, device=state.device)
    slots = rows.slots.gather(1, rows.accepted[:, None] - 1)[:, 0]
    read = rows.known & (slots >= 0)
    carried[read] = state[slots[read]].float()
    return carried
