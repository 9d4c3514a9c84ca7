"""Tries one backend on one case of a state-space operation, as a user's program would call it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import torch
from torch import Tensor

from attnctl.ops.case import Case
from attnctl.ops.compare import GUARD, Comparison, compare, fault, guarded, overrun
from attnctl.ops.gdn import gdn
from attnctl.ops.linear import linear
from attnctl.ops.mamba1 import mamba1
from attnctl.ops.mamba2 import mamba2
from attnctl.ops.short_conv import short_conv
from attnctl.ops.state_inputs import StateBatch, build, moved
from attnctl.runtime import StateMetadata, StateRuntime

SPECIFICATIONS: dict[str, Callable[..., Tensor]] = {
    "gdn": gdn,
    "mamba1": mamba1,
    "mamba2": mamba2,
    "short_conv": short_conv,
    "linear": linear,
}


def try_case(runtime: StateRuntime, case: Case, device: torch.device | str = "cpu") -> Comparison:
    """Runs forward on poisoned pools, and compares outputs and states with the specification."""
    batch = build(case)
    metadata = _metadata(runtime, batch, device)
    exact, pool64 = _specified(batch, torch.float64)
    same, pool32 = _specified(batch, torch.float32)
    dtype = getattr(torch, str(case["dtype"]))
    out, buffer = guarded(tuple(exact.shape), dtype, device)
    pool, guard = _guarded_copy(batch.pool, device)
    runtime.forward(moved(batch.inputs, device), pool, metadata, out)
    stray = overrun(buffer) or overrun(guard)
    if stray or not bool(torch.isnan(out[batch.live :]).all()):
        return fault("overrun", stray or "tokens of padding rows were written")
    outputs = compare(out[: batch.live].cpu(), exact[: batch.live], same[: batch.live].to(dtype))
    if outputs.verdict != "pass":
        return outputs
    # a step at a time the state must hold; many at once it may be as exact as the outputs
    chunked = max(batch.lengths, default=0) > 1 + case.count("drafts")
    states = _judge_states(batch.pool, pool.cpu(), pool64, pool32, dtype if chunked else None)
    return states if states.verdict != "pass" or states.ratio > outputs.ratio else outputs


def _metadata(
    runtime: StateRuntime, batch: StateBatch, device: torch.device | str
) -> StateMetadata:
    def there(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(device)

    return runtime.build_metadata(
        batch.query_start_loc.to(device),
        batch.state_indices.to(device),
        batch.num_computed_tokens.to(device),
        max_query_len=max(batch.lengths, default=0),
        num_accepted=there(batch.num_accepted),
        speculative=there(batch.speculative),
        num_spec=batch.case.count("drafts"),
    )


def _specified(batch: StateBatch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Outputs in `dtype` and the pool after the batch: in float64, or in the state's own dtype."""
    pool = batch.pool.double() if dtype is torch.float64 else batch.pool.clone()
    metadata = StateMetadata(
        query_start_loc=batch.query_start_loc,
        state_indices=batch.state_indices,
        has_initial_state=batch.num_computed_tokens > 0,
        max_query_len=max(batch.lengths, default=0),
        num_accepted=batch.num_accepted,
        speculative=batch.speculative,
        num_spec=batch.case.count("drafts"),
    )
    return SPECIFICATIONS[batch.case.op](batch.inputs, pool, metadata, dtype=dtype), pool


def _guarded_copy(pool: Tensor, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """The pool with its strides, between guards of NaN; gaps between slots are NaN as well."""
    reach = 1 + sum((n - 1) * s for n, s in zip(pool.shape, pool.stride(), strict=True))
    buffer = torch.full((reach + 2 * GUARD,), torch.nan, dtype=pool.dtype, device=device)
    view = buffer[GUARD:].as_strided(pool.shape, pool.stride(), GUARD)
    return view.copy_(pool), buffer


def _judge_states(
    before: Tensor, found: Tensor, exact: Tensor, same: Tensor, dtype: torch.dtype | None
) -> Comparison:
    """What no sequence owns is untouched to the bit; every written slot is inside the budget.

    dtype: the precision in which the states count, None for their own.
    """
    written = ~_equal(before, same).flatten(1).all(1)
    stray = ~_equal(found, before)[~written]
    if bool(stray.any()):
        slot = (~written).nonzero()[int(stray.nonzero()[0, 0])]
        return fault("wrong", f"state: slot {int(slot)} was written and belongs to no sequence")
    known = ~torch.isnan(exact[written])
    if not bool(torch.isnan(found[written][~known]).all()):
        return fault("wrong", "state: columns beyond the kept tokens were written")
    found, exact, same = (value[written][known] for value in (found, exact, same))
    if dtype is not None:
        # rounded, so that the budget is that of this precision and an error below it is none
        found, same = found.to(dtype), same.to(dtype)
    judged = compare(found, exact, same)
    return msgspec.structs.replace(judged, detail=judged.detail and f"state: {judged.detail}")


def _equal(one: Tensor, other: Tensor) -> Tensor:
    return (one == other) | (torch.isnan(one) & torch.isnan(other))
