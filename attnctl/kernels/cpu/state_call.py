"""Calls of the compiled state kernels by ctypes: each call's arguments are packed into one block.

An input that they do not take (another dtype, a slot that is not dense) is left to the caller.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.findings import Finding
from attnctl.kernels.cpu.build import build_here
from attnctl.ops.gdn import Gdn
from attnctl.ops.linear import Linear
from attnctl.ops.mamba1 import Mamba1
from attnctl.ops.mamba2 import Mamba2
from attnctl.ops.short_conv import ShortConv
from attnctl.runtime import StateMetadata

if TYPE_CHECKING:
    from attnctl.probe.host import Host

SOURCE = Path(__file__).with_name("states.cpp")

# struct Batch, Pool and View of states.cpp, then each operation's own, member by member
_BATCH, _POOL, _VIEW = "5P 6q", "P 2q", "P 3q"
_GDN = struct.Struct(f"{_BATCH} {_POOL} {_VIEW * 6} 2P 6q d")
_MAMBA1 = struct.Struct(f"{_BATCH} {_POOL} {_VIEW * 6} 3P 3q")
_MAMBA2 = struct.Struct(f"{_BATCH} {_POOL} {_VIEW * 6} 3P 6q 2d")
_LINEAR = struct.Struct(f"{_BATCH} {_POOL} {_VIEW * 4} P 3q d")
_CONV = struct.Struct(f"{_BATCH} {_POOL} 4q {_VIEW * 2} 2P 3q")

TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
_ABSENT = (0, 0, 0, 0)

_WRONG = {
    1: "query_start_loc must rise from 0 to at most the {tokens} tokens; it does not in row {row}",
    2: "state_indices of row {row} name a slot beyond the pool, which has {slots}",
    3: "num_accepted of row {row} must lie between 1 and {most}",
}


def open_states(host: Host) -> tuple[NativeStates | None, Finding]:
    """The compiled state kernels; None with a finding that says why there is no compiler."""
    built = build_here(host, SOURCE)
    return (NativeStates(built.path) if built.path else None), built.finding


class Refused(Exception):  # noqa: N818  what the kernels do not take is no error of the user's
    """An input that only torch computes with."""


class NativeStates:
    """The state kernels of one shared object. Load it after torch: both then share one OpenMP."""

    name = "c++"

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self._functions: dict[str, Callable[[bytes], int]] = {}
        for op in ("gdn", "mamba1", "mamba2", "linear", "short_conv"):
            function = getattr(library, f"attnctl_{op}")
            function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_longlong
            self._functions[op] = function
        self._batch: tuple[StateMetadata, int, int, tuple[int, ...]] | None = None

    def forward(
        self, op: str, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor
    ) -> bool:
        """False where the kernels do not take these tensors: nothing has been done then.

        InputError: the tensors contradict each other.
        """
        call = _Call(op, state)
        try:
            batch = self._open(metadata, out.shape[0], state.shape[0])
            arguments = _PACKERS[op](call, inputs, batch, out, metadata)
        except Refused:
            return False
        wrong = self._functions[op](arguments)
        if wrong:
            what = _WRONG[wrong % 8].format(
                row=wrong // 8, tokens=out.shape[0], slots=state.shape[0], most=batch[7]
            )
            raise InputError(f"{op}: {what}")
        return True

    def _open(self, metadata: StateMetadata, tokens: int, slots: int) -> tuple[int, ...]:
        """The members of struct Batch; a batch that several layers share is looked at once."""
        last, threads = self._batch, torch.get_num_threads()
        if last is not None and last[0] is metadata and last[1:3] == (tokens, slots):
            return (*last[3], threads)
        members, copied = _batch(metadata, tokens, slots)
        if copied:
            # the copies must live as long as the call, and what they copy may change after it
            self._copies = copied
        else:
            self._batch = (metadata, tokens, slots, members)
        return (*members, threads)


def _batch(
    metadata: StateMetadata, tokens: int, slots: int
) -> tuple[tuple[int, ...], list[Tensor]]:
    indices, rows = metadata.state_indices, metadata.query_start_loc.shape[0] - 1
    found, copied = [], []
    for name, dtype in (
        ("query_start_loc", torch.int32),
        ("state_indices", torch.int32),
        ("num_accepted", torch.int32),
        ("has_initial_state", torch.bool),
        ("speculative", torch.bool),
    ):
        tensor = getattr(metadata, name)
        if tensor is None:
            found.append(0)
            continue
        if not tensor.is_cpu or tensor.shape[0] != rows + (name == "query_start_loc"):
            _refuse(f"{name} must lie on the cpu with {rows} rows; it is {list(tensor.shape)}")
        if tensor.dtype is not dtype or not tensor.is_contiguous():
            tensor = tensor.to(dtype).contiguous()
            copied.append(tensor)
        found.append(tensor.data_ptr())
    most = 1 + metadata.num_spec if indices.shape[1] == 1 else indices.shape[1]
    return (*found, rows, indices.shape[1], most, tokens, slots), copied


class _Call:
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

    def _refuse(self, name: str, tensor: Tensor, shape: tuple[int, ...]) -> NoReturn:
        _refuse(
            f"{self.op}: {name} must be {list(shape)} on the cpu for these inputs; "
            f"it is {list(tensor.shape)} on {tensor.device}"
        )


def _out(out: Tensor) -> tuple[int, ...]:
    steps = out.stride()
    if steps[-1] != 1:
        raise Refused
    return (out.data_ptr(), _type(out), steps[0], steps[1] if len(steps) == 3 else 0)


def _gdn(call: _Call, x: Gdn, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
    tokens, k_heads, width = x.q.shape
    _, v_heads, width_v = x.v.shape
    if not k_heads or v_heads % k_heads:
        _refuse(f"gdn: {v_heads} value heads do not divide by {k_heads} key heads")
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


def _mamba1(call: _Call, x: Mamba1, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
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


def _mamba2(call: _Call, x: Mamba2, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
    tokens, heads, width_v = x.x.shape
    _, groups, width = x.b.shape
    if not groups or heads % groups:
        _refuse(f"mamba2: {heads} heads do not divide by {groups} groups")
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


def _linear(call: _Call, x: Linear, batch: tuple[int, ...], out: Tensor, _: StateMetadata) -> bytes:
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
    call: _Call, x: ShortConv, batch: tuple[int, ...], out: Tensor, metadata: StateMetadata
) -> bytes:
    state, shape = call.state, x.x.shape
    slot_step, column_step, channel_step = state.stride()
    channels, taps = shape[1], x.weight.shape[1]
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
        call.constant("weight", x.weight, (channels, taps)),
        call.constant("bias", x.bias, (channels,)),
        channels,
        taps,
        x.activation == "silu",
    )


_PACKERS: dict[str, Callable[[_Call, Any, tuple[int, ...], Tensor, StateMetadata], bytes]] = {
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


def _refuse(what: str) -> NoReturn:
    raise InputError(what)
