"""Sequences with a carried state: which slot each starts from, and which token's state is kept.

Every operation of the state-space family is a way to advance a state over some tokens; this walks a
packed batch with it. See attnctl.runtime.StateMetadata for padding, first chunks and speculation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec
import torch
from torch import Tensor

from attnctl.runtime import StateMetadata

Inputs = TypeVar("Inputs", bound=msgspec.Struct)

Advance = Callable[[Tensor, slice], tuple[Tensor, Tensor]]
"""The state after a stretch of tokens and their outputs, from the state before it."""


class Row(NamedTuple):
    """One sequence: tokens first to last - 1, the slot of its initial state (-1: zero), and the
    slot that keeps the state after each token (-1: none does)."""

    first: int
    last: int
    initial: int
    keep: tuple[int, ...]


def rows_of(metadata: StateMetadata) -> Iterator[Row]:
    """Every sequence that has tokens and is not padding."""
    starts = metadata.query_start_loc.tolist()
    slots = metadata.state_indices.tolist()
    count = len(slots)
    accepted = [1] * count if metadata.num_accepted is None else metadata.num_accepted.tolist()
    verified = [False] * count if metadata.speculative is None else metadata.speculative.tolist()
    for b, has_state in enumerate(metadata.has_initial_state.tolist()):
        first, last = starts[b], starts[b + 1]
        if first == last or slots[b][0] < 0:
            continue
        initial = slots[b][accepted[b] - 1] if has_state else -1
        nothing = [-1] * (last - first)
        keep = (slots[b] + nothing)[: last - first] if verified[b] else [*nothing[1:], slots[b][0]]
        yield Row(first, last, initial, tuple(keep))


def advance_rows(
    state: Tensor,
    metadata: StateMetadata,
    advance: Advance,
    out: Tensor,
    dtype: torch.dtype,
    chunk: int = 1,
) -> None:
    """Runs each sequence through `advance`, `chunk` tokens at a time; states and `out` in place.

    Where every token's state is kept (verification) a stretch is one token.
    """
    for row in rows_of(metadata):
        zero = torch.zeros(state.shape[1:], dtype=dtype, device=state.device)
        carried = zero if row.initial < 0 else state[row.initial].to(dtype)
        size = 1 if any(slot >= 0 for slot in row.keep[:-1]) else chunk
        for begin in range(row.first, row.last, size):
            tokens = slice(begin, min(begin + size, row.last))
            carried, rows = advance(carried, tokens)
            out[tokens] = rows.to(out.dtype)
            slot = row.keep[tokens.stop - row.first - 1]
            if slot >= 0:
                state[slot] = carried.to(state.dtype)


def take(inputs: Inputs, tokens: Tensor | slice) -> Inputs:
    """The same inputs with only these tokens, in this order."""
    per_token: tuple[str, ...] = inputs.per_token  # type: ignore[attr-defined]
    changed: dict[str, Any] = {
        name: value[tokens] for name in per_token if (value := getattr(inputs, name)) is not None
    }
    return msgspec.structs.replace(inputs, **changed)


def over_tensors(value: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """The same value with `change` applied to each of its tensors."""
    changed = {
        name: change(found)
        for name in value.__struct_fields__
        if isinstance(found := getattr(value, name), Tensor)
    }
    return msgspec.structs.replace(value, **changed)


def causal_decay(log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """Decay from the start of a stretch to each token, and from token j to token i (0 where j > i).

    log_decay: [T, ...], what each token's step multiplies the state with, as a logarithm.
    Gives [T, ...] and [T (i), T (j), ...].
    """
    total = log_decay.cumsum(0)
    between = total[:, None] - total[None, :]
    count = total.shape[0]
    seen = torch.ones(count, count, dtype=torch.bool, device=total.device).tril()
    seen = seen.reshape(count, count, *[1] * (total.dim() - 1))
    # masked before exp: decay back in time may overflow
    between = between.masked_fill(~seen, -torch.inf)
    return total.exp(), between.exp()
