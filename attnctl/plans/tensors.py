"""The tensors that planned layers keep: a cache of pages, or states by slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnctl.arguments import refuse_no_count, refuse_other, shown
from attnctl.exits import InputError
from attnctl.layer import Layer
from attnctl.plans.blocks import widths

if TYPE_CHECKING:
    from torch import Tensor


def zeroed_cache(
    runtime: Any, layer: Layer, num_blocks: int, block_size: int, device: Any, dtype: Any
) -> Tensor:
    """[N, P, ...] in the order of memory that the runtime likes best; dtype None: the layer's."""
    import torch

    refuse_no_count("num_blocks", num_blocks, 1)
    device = _device(device)
    if dtype is not None:
        refuse_other("dtype", dtype, torch.dtype, "one of torch's, as torch.bfloat16")
    lengths = widths(layer.op, layer.group, layer.kv_heads)
    shape = runtime.cache_shape(num_blocks, block_size, *lengths)
    order = list(getattr(runtime, "cache_stride_order", lambda: range(len(shape)))())
    memory = torch.zeros(
        [shape[axis] for axis in order],
        dtype=dtype or getattr(torch, layer.dtype),
        device=device,
    )
    return memory.permute([order.index(axis) for axis in range(len(shape))])


def zeroed_states(layer: Layer, slots: int, device: Any, num_spec: int) -> dict[str, Tensor]:
    """Pools [slots, ...] by name ("conv", "ssm") of a layer that keeps a state."""
    import torch

    from attnctl.caches.states import state_tensors

    state = layer.group.state
    if state is None:
        return {}
    refuse_no_count("slots", slots, 1)
    refuse_no_count("num_spec", num_spec)
    device = _device(device)
    return {
        one.name: torch.zeros(slots, *one.shape, dtype=getattr(torch, one.dtype), device=device)
        for one in state_tensors(
            state,
            dtype=layer.dtype,
            conv_dtype=state.conv_dtype or "auto",
            ssm_dtype=state.ssm_dtype or "auto",
            tp=layer.tp,
            num_spec=num_spec,
        )
    }


def _device(device: Any) -> Any:
    """The device as torch takes it, None for the default one. InputError: torch knows none such."""
    import torch

    try:
        return None if device is None else torch.device(device)
    except (RuntimeError, TypeError):
        raise InputError(f"device {shown(device)}: give one of torch's, as cpu or cuda:0") from None
