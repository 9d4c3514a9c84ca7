"""The causal convolution in torch: every tap of every token is one gather, without a loop in time.

Tokens, the rows' old states and one row of zeros are stacked into one table; each tap and each
column of a new state is a row of it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu

from attnctl.kernels.eager.walk import Rows
from attnctl.ops.short_conv import ShortConv
from attnctl.runtime import StateMetadata


def forward(inputs: ShortConv, state: Tensor, metadata: StateMetadata, out: Tensor) -> None:
    """out: [T, C]; state: [slots, L, C], in place."""
    rows = Rows(metadata)
    if not len(rows):
        return
    table = _Table(inputs.x, state, rows, metadata.num_spec)
    row = torch.repeat_interleave(torch.arange(len(rows), device=state.device), rows.lengths)
    begins = rows.lengths.cumsum(0) - rows.lengths
    place = torch.arange(row.shape[0], device=state.device) - begins[row]
    weight = inputs.weight.float()
    width = weight.shape[1]
    y = 0.0 if inputs.bias is None else inputs.bias.float()
    for tap in range(width):
        y = y + table.at(row, place + (tap - width + 1)).float() * weight[:, tap]
    y = silu(y) if inputs.activation == "silu" else y
    out[rows.starts[row] + place] = y.to(out.dtype)  # type: ignore[union-attr]
    _keep(state, table, rows, metadata.num_spec)


class _Table:
    """Tokens and states as rows of one tensor."""

    def __init__(self, x: Tensor, state: Tensor, rows: Rows, num_spec: int) -> None:
        self._tokens, self._columns = x.shape[0], state.shape[1]
        self._rows = rows
        # where the token just before this batch's first one lies in each row's state
        self._newest = self._columns - 1 - num_spec + rows.accepted - 1
        dtype = torch.promote_types(x.dtype, state.dtype)
        old = state[rows.slots[:, 0]].flatten(0, 1)
        zero = x.new_zeros(1, x.shape[1])
        self._table = torch.cat([part.to(dtype) for part in (x, old, zero)])

    def at(self, row: Tensor, place: Tensor) -> Tensor:
        """The channels of place 0, 1, ... of a row's tokens, or of -1, -2, ... before them."""
        old = self._tokens + row * self._columns + self._newest[row] + 1 + place
        zero = self._table.shape[0] - 1
        old = torch.where(self._rows.known[row], old, torch.full_like(old, zero))
        return self._table[torch.where(place >= 0, self._rows.starts[row] + place, old)]


def _keep(state: Tensor, table: _Table, rows: Rows, num_spec: int) -> None:
    """Writes each row's newest tokens up to its last kept column."""
    columns = torch.arange(state.shape[1], device=state.device)
    extra = torch.where(rows.verified, rows.lengths - 1, torch.zeros_like(rows.lengths))
    kept = state.shape[1] - num_spec + extra
    row, column = (columns[None, :] < kept[:, None]).nonzero().unbind(1)
    values = table.at(row, rows.lengths[row] + column - kept[row])
    state[rows.slots[row, 0], column] = values.to(state.dtype)
