"""The arguments of a state kernel: each operation's tensors, checked and packed into one block."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from attnctl.exits import InputError
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
    """The tensors of one call: checked, described by address, and kept until it is over."""

    __slots__ = ("kept", "op", "state")

    def __init__(self, op: str, state: Tensor) -> None:
        self.op, self.state = op, state
        self.kept: list[Tensor] = []

    def dense_pool(self) -> tuple[int, ...]:
        state = self.state
        steps, size = state.stride(), 1
        for extent, step in zip(reversed(state.shape), reversed(steps[1:]), strict=False):
            if step != size and extent != 1:
                raise Refused
            size *= extent
        return (state.data_ptr(), _type(state), steps[0])

    def rows(self, name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A tensor [T, n] or [T, heads, n], its last dimension dense; None: absent."""
        if tensor is None:
            return _ABSENT
        if tensor.shape != shape or not tensor.is_cpu:
            self._refuse(name, tensor, shape)
        steps = tensor.stride()
        if steps[-1] != 1:
            tensor = tensor.contiguous()
            steps = tensor.stride()
            self.kept.append(tensor)
        return (tensor.data_ptr(), _type(tensor), steps[0], steps[1] if len(steps) == 3 else 0)

    def numbers(self, name: str, tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A tensor [T, heads] of any strides."""
        if tensor.shape != shape or not tensor.is_cpu:
            self._refuse(name, tensor, shape)
        return (tensor.data_ptr(), _type(tensor), *tensor.stride())

    def constant(
        self, name: str, tensor: Tensor | None, shape: tuple[int, ...], other: Any = None
    ) -> int:
        """The address of a layer's constant in float32, 0 where it has none."""
        if tensor is None:
            return 0
        if (tensor.shape != shape and tensor.shape != other) or not tensor.is_cpu:
            self._refuse(name, tensor, shape)
        if tensor.dtype is not torch.float32 or not tensor.is_contiguous():
            tensor = tensor.to(torch.float32).contiguous()
            self.kept.append(tensor)
        return int(tensor.data_ptr())

    def stored(self, name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> tuple[int, int]:
        """The address and type of a layer's constant as it is, zeros where it has none."""
        if tensor is None:
            return 0, 0
        if tensor.shape != shape or not tensor.is_cpu:
            self._refuse(name, tensor, shape)
        if not tensor.is_contiguous():
            tensor = tensor.contiguous()
            self.kept.append(tensor)
        return int(tensor.data_ptr()), _type(tensor)

    def _refuse(self, name: str, tensor: Tensor, shape: tuple[int, ...]) -> NoReturn:
        refuse(
            f"{self.op}: {name} must be {list(shape)} on the cpu for these inputs; "
            f"it is {list(tensor.shape)} on {tensor.device}"
        )


def _out(out: Tensor) -> tuple[int, ...]:
    steps = out.stride()
    if steps[-1] != 1:
        raise Refused
    return (out.data_ptr(), _type(out), steps[0], steps[1] if len(steps) == 3 else 0)


def _gdn(call: Call, x: Gdn, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
    tokens, k_heads, width = x.q.shape
    _, v_heads, width_v = x.v.shape
    if not k_heads or v_heads % k_heads:
        refuse(f"gdn: {v_heads} value heads do not divide by {k_heads} key heads")
    keys, channels = (tokens, k_heads, width), x.g.dim() == 3
    heads = (tokens, v_heads)
    gates = call.rows("g", x.g, (*heads, width)) if channels else call.numbers("g", x.g, heads)
    bias = (v_heads, width) if channels else (v_heads,)
    return _GDN.pack(
        *batch,
        *call.dense_pool(),
        *call.rows("q", x.q, keys),
        *call.rows("k", x.k, keys),
        *call.rows("v", x.v, (*heads, width_v)),
        *gates,
        *call.numbers("beta", x.beta, heads),
        *_out(out),
        call.constant("a_log", x.a_log, (v_heads,)),
        0 if x.dt_bias is None or x.a_log is None else call.constant("dt_bias", x.dt_bias, bias),
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
    tokens = x.x.shape[0]
    wide, narrow = (tokens, channels), (tokens, width)
    return _MAMBA1.pack(
        *batch,
        *call.dense_pool(),
        *call.rows("x", x.x, wide),
        *call.rows("dt", x.dt, wide),
        *call.rows("b", x.b, narrow),
        *call.rows("c", x.c, narrow),
        *call.rows("z", x.z, wide),
        *_out(out),
        call.constant("a", x.a, (channels, width)),
        call.constant("d", x.d, (channels,)),
        call.constant("dt_bias", x.dt_bias, (channels,)),
        channels,
        width,
        x.softplus,
    )


def _mamba2(call: Call, x: Mamba2, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
    tokens, heads, width_v = x.x.shape
    _, groups, width = x.b.shape
    if not groups or heads % groups:
        refuse(f"mamba2: {heads} heads do not divide by {groups} groups")
    wide, shared = (tokens, heads, width_v), (tokens, groups, width)
    return _MAMBA2.pack(
        *batch,
        *call.dense_pool(),
        *call.rows("x", x.x, wide),
        *call.numbers("dt", x.dt, (tokens, heads)),
        *call.rows("b", x.b, shared),
        *call.rows("c", x.c, shared),
        *call.rows("z", x.z, wide),
        *_out(out),
        call.constant("a", x.a, (heads,)),
        call.constant("d", x.d, (heads,), (heads, width_v)),
        call.constant("dt_bias", x.dt_bias, (heads,)),
        heads,
        groups,
        width_v,
        width,
        x.softplus,
        x.d is not None and x.d.dim() == 2,
        *x.dt_limit,
    )


def _linear(call: Call, x: Linear, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
    tokens, heads, width = x.q.shape
    width_v = x.v.shape[2]
    return _LINEAR.pack(
        *batch,
        *call.dense_pool(),
        *call.rows("q", x.q, (tokens, heads, width)),
        *call.rows("k", x.k, (tokens, heads, width)),
        *call.rows("v", x.v, (tokens, heads, width_v)),
        *_out(out),
        call.constant("slope", x.slope, (heads,)),
        heads,
        width,
        width_v,
        x.scale,
    )


def _short_conv(
    call: Call, x: ShortConv, batch: tuple[int, ...], out: Tensor, metadata: StateMetadata
) -> bytes:
    state, shape = call.state, x.x.shape
    slot_step, column_step, channel_step = state.stride()
    channels, taps = shape[1], x.weight.shape[1]
    constants = (
        call.stored("weight", x.weight, (channels, taps)),
        call.stored("bias", x.bias, (channels,)),
    )
    return _CONV.pack(
        *batch,
        state.data_ptr(),
        _type(state),
        slot_step,
        column_step,
        channel_step,
        state.shape[1],
        metadata.num_spec,
        *call.rows("x", x.x, shape),
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


def refuse(what: str) -> NoReturn:
    raise InputError(what)
