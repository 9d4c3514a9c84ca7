"""The arguments of a state kernel: each operation's tensors packed into one block.

attnctl.kernels.state_checks has said that they fit together and lie on the processor.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnctl.ops.gdn import Gdn
from attnctl.ops.linear import Linear
from attnctl.ops.mamba1 import Mamba1
from attnctl.ops.mamba2 import Mamba2
from attnctl.ops.short_conv import ShortConv
from attnctl.runtime import StateMetadata

# struct Batch, Pool and View of states.cpp, then each operation's own, member by member
_BATCH, _POOL, _VIEW = "5P 6q", "P 2q", "P 3q"
_GDN = struct.Struct(f"{_BATCH} {_POOL} {_VIEW * 6} 2P 6q d")
_MAMBA1 = struct.Struct(f"{_BATCH} {_POOL} {_VIEW * 6} 3P 3q")
_MAMBA2 = struct.Struct(f"{_BATCH} {_POOL} {_VIEW * 6} 3P 6q 2d")
_LINEAR = struct.Struct(f"{_BATCH} {_POOL} {_VIEW * 4} P 3q d")
_CONV = struct.Struct(f"{_BATCH} {_POOL} 4q {_VIEW * 2} 2P 5q")

TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
_ABSENT = (0, 0, 0, 0)


class Refused(Exception):  # noqa: N818  what the kernels do not take is no error of the user's
    """An input that only torch computes with."""


class Call:
    """The tensors of one call: described by address, and kept until it is over."""

    __slots__ = ("kept", "state")

    def __init__(self, state: Tensor) -> None:
        self.state = state
        self.kept: list[Tensor] = []

    def dense_pool(self) -> tuple[int, ...]:
        state = self.state
        steps, size = state.stride(), 1
        for extent, step in zip(reversed(state.shape), reversed(steps[1:]), strict=False):
            if step != size and extent != 1:
                raise Refused
            size *= extent
        return (state.data_ptr(), _type(state), steps[0])

    def rows(self, tensor: Tensor | None) -> tuple[int, ...]:
        """A tensor [T, n] or [T, heads, n], its last dimension dense; None: absent."""
        if tensor is None:
            return _ABSENT
        steps = tensor.stride()
        if steps[-1] != 1:
            tensor = tensor.contiguous()
            steps = tensor.stride()
            self.kept.append(tensor)
        return (tensor.data_ptr(), _type(tensor), steps[0], steps[1] if len(steps) == 3 else 0)

    def numbers(self, tensor: Tensor) -> tuple[int, ...]:
        """A tensor [T, heads] of any strides."""
        return (tensor.data_ptr(), _type(tensor), *tensor.stride())

    def constant(self, tensor: Tensor | None) -> int:
        """The address of a layer's constant in float32, 0 where it has none."""
        if tensor is None:
            return 0
        if tensor.dtype is not torch.float32 or not tensor.is_contiguous():
            tensor = tensor.to(torch.float32).contiguous()
            self.kept.append(tensor)
        return int(tensor.data_ptr())

    def stored(self, tensor: Tensor | None) -> tuple[int, int]:
        """The address and type of a layer's constant as it is, zeros where it has none."""
        if tensor is None:
            return 0, 0
        if not tensor.is_contiguous():
            tensor = tensor.contiguous()
            self.kept.append(tensor)
        return int(tensor.data_ptr()), _type(tensor)


def _out(out: Tensor) -> tuple[int, ...]:
    steps = out.stride()
    if steps[-1] != 1:
        raise Refused
    return (out.data_ptr(), _type(out), steps[0], steps[1] if len(steps) == 3 else 0)


def _gdn(call: Call, x: Gdn, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
    k_heads, width = x.q.shape[1:]
    v_heads, width_v = x.v.shape[1:]
    channels = x.g.dim() == 3
    return _GDN.pack(
        *batch,
        *call.dense_pool(),
        *call.rows(x.q),
        *call.rows(x.k),
        *call.rows(x.v),
        *(call.rows(x.g) if channels else call.numbers(x.g)),
        *call.numbers(x.beta),
        *_out(out),
        call.constant(x.a_log),
        0 if x.dt_bias is None or x.a_log is None else call.constant(x.dt_bias),
        k_heads,
        v_heads,
        width,
        width_v,
        x.l2norm,
        channels,
        x.scale,
    )


def _mamba1(call: Call, x: Mamba1, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
    channels, width = x.a.shape
    return _MAMBA1.pack(
        *batch,
        *call.dense_pool(),
        *call.rows(x.x),
        *call.rows(x.dt),
        *call.rows(x.b),
        *call.rows(x.c),
        *call.rows(x.z),
        *_out(out),
        call.constant(x.a),
        call.constant(x.d),
        call.constant(x.dt_bias),
        channels,
        width,
        x.softplus,
    )


def _mamba2(call: Call, x: Mamba2, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
    heads, width_v = x.x.shape[1:]
    groups, width = x.b.shape[1:]
    return _MAMBA2.pack(
        *batch,
        *call.dense_pool(),
        *call.rows(x.x),
        *call.numbers(x.dt),
        *call.rows(x.b),
        *call.rows(x.c),
        *call.rows(x.z),
        *_out(out),
        call.constant(x.a),
        call.constant(x.d),
        call.constant(x.dt_bias),
        heads,
        groups,
        width_v,
        width,
        x.softplus,
        x.d is not None and x.d.dim() == 2,
        *x.dt_limit,
    )


def _linear(call: Call, x: Linear, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
    heads, width = x.q.shape[1:]
    width_v = x.v.shape[2]
    return _LINEAR.pack(
        *batch,
        *call.dense_pool(),
        *call.rows(x.q),
        *call.rows(x.k),
        *call.rows(x.v),
        *_out(out),
        call.constant(x.slope),
        heads,
        width,
        width_v,
        x.scale,
    )


def _short_conv(
    call: Call, x: ShortConv, batch: tuple[int, ...], out: Tensor, metadata: StateMetadata
) -> bytes:
    state = call.state
    slot_step, column_step, channel_step = state.stride()
    channels, taps = x.weight.shape
    constants = (call.stored(x.weight), call.stored(x.bias))
    return _CONV.pack(
        *batch,
        state.data_ptr(),
        _type(state),
        slot_step,
        column_step,
        channel_step,
        state.shape[1],
        metadata.num_spec,
        *call.rows(x.x),
        *_out(out),
        *(found[0] for found in constants),
        *(found[1] for found in constants),
        channels,
        taps,
        x.activation == "silu",
    )


PACKERS: dict[str, Callable[[Call, Any, tuple[int, ...], Tensor, StateMetadata], bytes]] = {
    "gdn": _gdn,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "linear": _linear,
    "short_conv": _short_conv,
}


def _type(tensor: Tensor) -> int:
    found = TYPES.get(tensor.dtype)
    if found is None:
        raise Refused
    return found
