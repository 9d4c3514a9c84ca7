"""Batches to try a state-space operation on: a case's text names lengths, slots and every option.

Slots are shuffled. NaN lies wherever nothing may be read: in slots of first chunks, in free slots,
and in columns of rejected drafts.
"""

from __future__ import annotations

from functools import partial
from itertools import cycle, islice
from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.caches.states import state_shapes
from attnctl.ops.case import Case
from attnctl.ops.state_arguments import MAKERS, Draw
from attnctl.ops.state_cases import numbers, state_for
from attnctl.ops.states import over_tensors

PADDING_TOKENS = 3
"""Tokens of each padding row."""

PADDED = 7.0
"""What they hold: a number, so that a row that is computed although it is padding shows."""

SPARE_SLOTS = 3


class StateBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One case's tensors on the host.

    inputs: the operation's own value over T tokens, those of padding rows last; live: how many
    belong to sequences. pool: [slots, ...] in the state's dtype. lengths: tokens of each row,
    padding included. Other fields: the arguments of StateRuntime.build_metadata.
    """

    case: Case
    inputs: Any
    pool: Tensor
    live: int
    lengths: list[int]
    state_indices: Tensor
    num_computed_tokens: Tensor
    num_accepted: Tensor | None
    speculative: Tensor | None

    @property
    def query_start_loc(self) -> Tensor:
        return torch.tensor([0, *self.lengths]).cumsum(0).to(torch.int32)


def build(case: Case) -> StateBatch:
    """The tensors of a case: the same numbers every time."""
    generator = torch.Generator().manual_seed(case.seed)
    draw = partial(torch.randn, generator=generator)
    queries, drafts = numbers(case, "queries"), case.count("drafts")
    lengths = queries + [PADDING_TOKENS] * case.count("padding")
    rows, live = len(lengths), sum(queries)
    inputs = _inputs(case, sum(lengths), live, draw)
    known = _which(str(case["initial"]), rows)
    accepted = list(islice(cycle(numbers(case, "accepted")), rows)) if drafts else [1] * rows
    order = torch.randperm(rows * (1 + drafts) + SPARE_SLOTS, generator=generator)
    indices = order[: rows * (1 + drafts)].reshape(rows, 1 + drafts).to(torch.int32)
    indices[len(queries) :] = -1
    pool = _pool(case, order.shape[0])
    for row in range(len(queries)):
        if known[row]:
            _lay(case, pool, indices[row], accepted[row], draw)
    verified = _which(str(case["verified"]), rows)
    return StateBatch(
        case=case,
        inputs=inputs,
        pool=pool,
        live=live,
        lengths=lengths,
        state_indices=indices,
        num_computed_tokens=torch.tensor([9 if one else 0 for one in known], dtype=torch.int32),
        num_accepted=torch.tensor(accepted, dtype=torch.int32) if drafts else None,
        speculative=torch.tensor(verified) if drafts else None,
    )


def _which(rule: str, rows: int) -> list[bool]:
    return [rule == "all" or (rule == "mixed" and row % 2 == 0) for row in range(rows)]


def _pool(case: Case, slots: int) -> Tensor:
    """NaN everywhere; slots dense or with a gap between them, conv columns in either order."""
    shape = pool_shape(case)
    dtype = getattr(torch, str(case["state_dtype"]))
    if case.params.get("layout") == "DS":
        shape = shape[::-1]
    size = torch.Size(shape).numel()
    gap = 16 if case["apart"] else 0
    whole = torch.full((slots, size + gap), torch.nan, dtype=dtype)
    pool = whole[:, :size].unflatten(1, shape)
    return pool.mT if case.params.get("layout") == "DS" else pool


def pool_shape(case: Case) -> tuple[int, ...]:
    """The state of one slot."""
    name = "conv" if case.op == "short_conv" else "ssm"
    shape = dict(state_shapes(state_for(case), num_spec=case.count("drafts")))[name]
    if case.op == "linear" and case["head_v_dim"]:
        return (*shape[:2], case.count("head_v_dim"))
    if case.op == "gdn":
        return (shape[0], case.count("head_v_dim"), case.count("head_k_dim"))
    if case.op == "short_conv" and case["columns"]:
        return (case.count("columns"), shape[1])
    return shape


def _lay(case: Case, pool: Tensor, slots: Tensor, accepted: int, draw: Draw) -> None:
    """Puts a state where the row's last step would have left it, and NaN where it may not read."""
    state = draw(pool.shape[1:]).to(pool.dtype)
    if case.op != "short_conv":
        pool[int(slots[accepted - 1])] = state
        return
    columns = pool.shape[1] - case.count("drafts") + accepted - 1
    pool[int(slots[0]), :columns] = state[:columns]


def _inputs(case: Case, tokens: int, live: int, draw: Draw) -> Any:
    """Inputs in the case's dtype; constants in float32."""
    dtype = getattr(torch, str(case["dtype"]))
    made = MAKERS[case.op](case, tokens, draw)
    changed = {}
    for name in made.per_token:
        value = getattr(made, name)
        if value is not None:
            value = value.to(dtype)
            value[live:] = PADDED
            changed[name] = _strided(value) if case["fused"] else value
    return msgspec.structs.replace(made, **changed)


def _strided(value: Tensor) -> Tensor:
    """The same numbers as a view of rows that are wider than the tensor's."""
    wide = torch.full((value.shape[0], value.shape[1:].numel() + 8), torch.nan, dtype=value.dtype)
    view = wide[:, 8:].unflatten(1, value.shape[1:])
    return view.copy_(value)


def moved(inputs: Any, device: torch.device | str) -> Any:
    """The inputs on a device, strides kept."""
    return over_tensors(inputs, partial(with_strides, device=device))


def with_strides(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A copy on a device with the same strides, gaps filled with NaN."""
    if tensor.numel() == 0:
        return tensor.to(device)
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    whole = torch.full((reach,), torch.nan, dtype=tensor.dtype, device=device)
    return whole.as_strided(tensor.shape, tensor.stride()).copy_(tensor)
