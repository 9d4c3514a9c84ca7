"""Whether a group of layers divides over tensor-parallel ranks, as vLLM demands at start."""

from __future__ import annotations

from attnctl.caches.states import state_shapes
from attnctl.exits import InputError
from attnctl.model.spec import LayerGroup, State


def rank_error(group: LayerGroup, tp: int) -> str | None:
    """What vLLM raises because heads or channels do not divide by `tp`; None where all do."""
    if tp == 1:
        return None
    if group.state is not None:
        return _state_error(group.state, tp)
    heads, kv_heads = group.num_heads, group.num_kv_heads
    if heads is not None and heads % tp:
        return f"ValueError: {heads} query heads do not divide by --tp {tp}"
    # fewer KV heads than ranks are repeated; a latent cache is whole on every rank
    if group.mla is None and kv_heads is not None and kv_heads % tp and tp % kv_heads:
        return f"AssertionError: {kv_heads} KV heads and --tp {tp} do not divide each other"
    return None


def _state_error(state: State, tp: int) -> str | None:
    try:
        state_shapes(state)
    except InputError:
        # a figure is missing, whatever the ranks
        return None
    try:
        state_shapes(state, tp)
    except InputError as error:
        return f"AssertionError: {error}"
    return None
