"""What planned layers keep: pages or states, their widths, and who may take turns on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnctl.decision import Decision
from attnctl.exits import InputError
from attnctl.layer import Layer
from attnctl.model.spec import LayerGroup
from attnctl.profile.pick import Table
from attnctl.registry import Registry
from attnctl.runtime import open_backend

if TYPE_CHECKING:
    from torch import Tensor

LATENT = ("mla", "mla_sparse")


def interchangeable(
    decision: Decision, registry: Registry
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The eligible backends that may take turns on one cache, and sentences about the others.

    A backend that the user demanded stands alone.
    """
    first = decision.pick
    if first is None or decision.requested:
        return (first.name,) if first else (), ()
    names = [one.name for one in decision.candidates if one.ok and one.kernel != "planned"]
    kept, notes = [], []
    for name in (first.name, *(name for name in names if name != first.name)):
        if name == first.name or _same_cache(first.name, name, decision, registry):
            kept.append(name)
        else:
            notes.append(f"{name} keeps its cache otherwise than {first.name} and is left out")
    return tuple(kept), tuple(notes)


def _same_cache(one: str, other: str, decision: Decision, registry: Registry) -> bool:
    """True where both lay out the same blocks, in whatever order of memory, or states by slot."""
    group = decision.group
    if group.is_ssm:
        return True
    size = decision.pick.block_size if decision.pick else None
    widths = _widths(decision.op, group, group.num_kv_heads)
    shapes = []
    for name in (one, other):
        try:
            shapes.append(open_backend(name, registry).cache_shape(1, size, *widths))
        except (InputError, ImportError):
            return False
    return bool(shapes[0] == shapes[1])


def block_size_of(layer: Layer, decision: Decision, registry: Registry, table: Table) -> int | None:
    """The profile's size, if the user named none and the decision's backend takes it."""
    pick, asked = decision.pick, table.block_size
    own = pick.block_size if pick else None
    if pick is None or own is None or asked is None or layer.block_size is not None:
        return own
    widths = _widths(decision.op, decision.group, layer.kv_heads)
    try:
        open_backend(pick.name, registry).cache_shape(1, asked, *widths)
    except InputError:
        return own
    return asked


def _widths(op: str | None, group: LayerGroup, kv_heads: int | None) -> tuple[int | None, ...]:
    """What cache_shape takes after the block size: latent widths, or heads and head sizes."""
    if op in LATENT and group.mla is not None:
        return group.mla.kv_lora_rank, group.mla.qk_rope_head_dim
    return kv_heads, group.head_size, group.head_size_v


def zeroed_cache(
    runtime: Any, layer: Layer, num_blocks: int, block_size: int, device: Any, dtype: Any
) -> Tensor:
    """[N, P, ...] in the order of memory that the runtime likes best; dtype None: the layer's."""
    import torch

    widths = _widths(layer.op, layer.group, layer.kv_heads)
    shape = runtime.cache_shape(num_blocks, block_size, *widths)
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

    from attnctl.cache import state_tensors

    state = layer.group.state
    if state is None:
        return {}
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
