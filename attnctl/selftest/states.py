"""Faults of the state-space operations: in what a kernel is given, or in what it leaves behind."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.ops.case import Case
from attnctl.runtime import open_backend
from attnctl.selftest.planted import Planted

replace = msgspec.structs.replace
BACKENDS = {
    "gdn": "GDN_ATTN",
    "mamba1": "MAMBA1_ATTN",
    "mamba2": "MAMBA2_ATTN",
    "short_conv": "SHORT_CONV_ATTN",
    "linear": "LINEAR_ATTN",
}


def sound(case: Case) -> Any:
    """The kernel without a fault."""
    return open_backend(BACKENDS[case.op])


def _with_inputs(case: Case, **changes: Any) -> Planted:
    """A kernel that is given other inputs: name -> what makes them of the true ones."""
    kernel = sound(case)

    def forward(inputs: Any, state: Tensor, metadata: Any, out: Tensor) -> Tensor:
        given = {name: make(inputs) for name, make in changes.items() if hasattr(inputs, name)}
        found: Tensor = kernel.forward(replace(inputs, **given), state, metadata, out)
        return found

    return Planted(kernel, forward=forward)


def _with_metadata(case: Case, **changes: Any) -> Planted:
    """A kernel that is given other metadata."""
    kernel = sound(case)

    def forward(inputs: Any, state: Tensor, metadata: Any, out: Tensor) -> Tensor:
        given = {name: make(metadata) for name, make in changes.items()}
        found: Tensor = kernel.forward(inputs, state, replace(metadata, **given), out)
        return found

    return Planted(kernel, forward=forward)


def stale_state(case: Case) -> Planted:
    return _with_metadata(
        case, has_initial_state=lambda given: torch.ones_like(given.has_initial_state)
    )


def state_forgotten(case: Case) -> Planted:
    return _with_metadata(
        case, has_initial_state=lambda given: torch.zeros_like(given.has_initial_state)
    )


def state_not_written(case: Case) -> Planted:
    kernel = sound(case)

    def forward(inputs: Any, state: Tensor, metadata: Any, out: Tensor) -> Tensor:
        found: Tensor = kernel.forward(inputs, state.clone(), metadata, out)
        return found

    return Planted(kernel, forward=forward)


def slot_swapped(case: Case) -> Planted:
    kernel = sound(case)

    def forward(inputs: Any, state: Tensor, metadata: Any, out: Tensor) -> Tensor:
        found: Tensor = kernel.forward(inputs, state, metadata, out)
        slots = metadata.state_indices[:, 0]
        slots = slots[slots >= 0].long()
        state[slots] = state[slots.roll(1)].clone()
        return found

    return Planted(kernel, forward=forward)


def rollback_one_late(case: Case) -> Planted:
    return _with_metadata(
        case, num_accepted=lambda given: (given.num_accepted + 1).clamp(max=1 + given.num_spec)
    )


def drafts_kept_in_one_slot(case: Case) -> Planted:
    return _with_metadata(case, speculative=lambda given: torch.zeros_like(given.speculative))


def padding_row_owned(case: Case) -> Planted:
    """The first padding row after all others: two rows of one batch may not share a slot."""
    kernel = sound(case)

    def forward(inputs: Any, state: Tensor, metadata: Any, out: Tensor) -> Tensor:
        kernel.forward(inputs, state, metadata, out)
        alone = torch.full_like(metadata.state_indices, -1)
        alone[(metadata.state_indices[:, 0] < 0).int().argmax()] = 0
        owned = msgspec.structs.replace(metadata, state_indices=alone)
        found: Tensor = kernel.forward(inputs, state, owned, out)
        return found

    return Planted(kernel, forward=forward)


def state_rounded(case: Case) -> Planted:
    kernel = sound(case)

    def forward(inputs: Any, state: Tensor, metadata: Any, out: Tensor) -> Tensor:
        found: Tensor = kernel.forward(inputs, state, metadata, out)
        slots = metadata.state_indices[:, 0]
        slots = slots[slots >= 0].long()
        state[slots] = state[slots].bfloat16().to(state.dtype)
        return found

    return Planted(kernel, forward=forward)


def decay_dropped(case: Case) -> Planted:
    return _with_inputs(
        case,
        g=lambda given: torch.zeros_like(given.g),
        slope=lambda given: torch.zeros_like(given.slope),
    )


def norm_dropped(case: Case) -> Planted:
    return _with_inputs(case, l2norm=lambda given: False)


def beta_ignored(case: Case) -> Planted:
    return _with_inputs(case, beta=lambda given: torch.ones_like(given.beta))


def gate_bias_dropped(case: Case) -> Planted:
    return _with_inputs(case, dt_bias=lambda given: torch.zeros_like(given.dt_bias))


def softplus_dropped(case: Case) -> Planted:
    return _with_inputs(case, softplus=lambda given: False)


def skip_dropped(case: Case) -> Planted:
    return _with_inputs(case, d=lambda given: None)


def step_limits_dropped(case: Case) -> Planted:
    return _with_inputs(case, dt_limit=lambda given: (0.0, float("inf")))


def groups_mixed(case: Case) -> Planted:
    return _with_inputs(case, b=lambda given: given.b.flip(1).contiguous())


def taps_reversed(case: Case) -> Planted:
    return _with_inputs(case, weight=lambda given: given.weight.flip(1).contiguous())


def conv_bias_dropped(case: Case) -> Planted:
    return _with_inputs(case, bias=lambda given: None)
