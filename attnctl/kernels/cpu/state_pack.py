"""The arguments of a state kernel: each operation's tensors packed into one block."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnctl.kernels.states.checks import NUMBERS
from attnctl.kernels.states.operands_checks import ANY, OPERATIONS, Operands, Shape
from attnctl.ops.gdn import Gdn
from attnctl.ops.linear import Linear
from attnctl.ops.mamba1 import Mamba1
from attnctl.ops.mamba2 import Mamba2
from attnctl.ops.short_conv import ShortConv, check

# struct Batch, Pool and View of states.cpp
_BATCH, _POOL, _VIEW = "5P 6q", "P 2q", "P 3q"
_ABSENT = (0, 0, 0, 0)

Numbers = tuple[float, ...]


class Refused(Exception):  # noqa: N818  what the kernels do not take may be no error of the user's
    """An input that only torch computes with, or none at all."""


class _Types(dict[torch.dtype, int]):
    def __missing__(self, dtype: torch.dtype) -> int:
        raise Refused


TYPES = _Types({torch.float32: 0, torch.float16: 1, torch.bfloat16: 2})


class _Form(NamedTuple):
    """An operation's struct: the batch, the pool, views of inputs and of the output, addresses of
    constants in float32, numbers.

    loose: views whose last dimension need not be dense where they are [T, heads].
    """

    struct: Struct
    loose: frozenset[str]
    numbers: Callable[[Any, Operands], Numbers]


def _form(
    views: int,
    constants: int,
    kinds: str,
    numbers: Callable[[Any, Operands], Numbers],
    *loose: str,
) -> _Form:
    members = f"{_BATCH} {_POOL} {_VIEW * (views + 1)} {constants}P {kinds}"
    return _Form(Struct(members), frozenset(loose), numbers)


def _of_gdn(x: Gdn, found: Operands) -> Numbers:
    (heads, width_v, width), (_, k_heads, _) = found.slot, found.tokens[0][2]
    return (k_heads, heads, width, width_v, x.l2norm, len(found.tokens[3][2]) == 3, x.scale)


def _of_mamba1(x: Mamba1, found: Operands) -> Numbers:
    return (*found.slot, x.softplus)


def _of_mamba2(x: Mamba2, found: Operands) -> Numbers:
    (heads, width_v, width), (_, groups, _) = found.slot, found.tokens[2][2]
    of_channels = len(found.constants[1][2]) == 2
    return (heads, groups, width_v, width, x.softplus, of_channels, *x.dt_limit)


def _of_linear(x: Linear, found: Operands) -> Numbers:
    return (*found.slot, x.scale)


_FORMS = {
    "gdn": _form(5, 2, "6q d", _of_gdn, "g", "beta"),
    "mamba1": _form(5, 3, "3q", _of_mamba1),
    "mamba2": _form(5, 3, "6q 2d", _of_mamba2, "dt"),
    "linear": _form(3, 1, "3q d", _of_linear),
}
_CONV = Struct(f"{_BATCH} {_POOL} 4q {_VIEW * 2} 2P 5q")


Packed = tuple[bytes, Tensor, list[Tensor]]
"""A block, the result that it names, and tensors that must outlive the call by it."""


def pack(
    op: str, x: Any, state: Tensor, batch: tuple[int, ...], drafts: int, out: Tensor | None
) -> Packed:
    """The block of a call whose tensors fit together, as attnctl.kernels.states.checks has it.

    batch: the members of struct Batch. drafts: columns that a convolution keeps for them. out: a
    new one where it is None. Refused, InputError, RuntimeError: the kernels do not take these
    tensors, or nothing does; which of the two, the checks know. Written for the host's time: a
    tensor is asked for little, and a sparse one is found by its having no address.
    """
    kind, operands_of = OPERATIONS[op]
    if not isinstance(x, kind) or not isinstance(state, Tensor):
        raise Refused
    found = operands_of(op, x)
    if out is None:
        out = torch.zeros(found.result, dtype=found.tokens[0][1].dtype)
    for _, tensor, wanted in (*found.tokens, *found.constants, ("out", out, found.result)):
        if wanted and (
            not isinstance(tensor, Tensor)
            or tensor.shape != wanted
            or not tensor.is_cpu
            or tensor.is_neg()
        ):
            raise Refused
    shape, slot = tuple(state.shape), found.slot
    if slot[0] == ANY and len(shape) > 1:
        slot = (shape[1], *slot[1:])
    if shape[1:] != slot or not state.is_cpu or state.is_neg():
        raise Refused
    kept: list[Tensor] = []
    if op == "short_conv":
        return _packed_conv(x, state, batch, drafts, out, kept), out, kept
    form = _FORMS[op]
    members: list[float] = [*batch, *_dense_pool(state)]
    loose = form.loose
    for what, tensor, wanted in found.tokens:
        if wanted:
            steps = tensor.stride()
            if steps[-1] != 1 and (len(steps) == 3 or what not in loose):
                tensor = _dense(tensor, kept)
                steps = tensor.stride()
            members += (tensor.data_ptr(), TYPES[tensor.dtype], steps[0], steps[1])
        else:
            members += _ABSENT
    members += _written(out)
    members += [_constant(t, kept) if wanted else 0 for _, t, wanted in found.constants]
    return form.struct.pack(*members, *form.numbers(x, found)), out, kept


def _dense(tensor: Tensor, kept: list[Tensor]) -> Tensor:
    tensor = tensor.contiguous()
    kept.append(tensor)
    return tensor


def _written(out: Tensor) -> tuple[int, ...]:
    steps = out.stride()
    if steps[-1] != 1 or _is_spread(out.shape, steps):
        raise Refused
    return out.data_ptr(), TYPES[out.dtype], steps[0], steps[1]


def _is_spread(shape: Shape, steps: tuple[int, ...]) -> bool:
    """Whether places of a tensor lie on one another."""
    return 0 in steps and any(
        extent > 1 and not step for extent, step in zip(shape, steps, strict=True)
    )


def _constant(tensor: Tensor, kept: list[Tensor]) -> int:
    """The address of its numbers in float32."""
    if tensor.dtype is not torch.float32 or not tensor.is_contiguous():
        if tensor.dtype not in NUMBERS:
            raise Refused
        tensor = _dense(tensor.to(torch.float32), kept)
    address: int = tensor.data_ptr()
    return address


def _dense_pool(state: Tensor) -> tuple[int, ...]:
    """A pool whose slots may lie apart, each of them dense."""
    steps = state.stride()
    if not state.is_contiguous():
        size = 1
        for extent, step in zip(reversed(state.shape[1:]), reversed(steps[1:]), strict=True):
            if step != size and extent != 1:
                raise Refused
            size *= extent
        if _is_spread(state.shape, steps):
            raise Refused
    return state.data_ptr(), TYPES[state.dtype], steps[0]


def _packed_conv(
    x: ShortConv,
    state: Tensor,
    batch: tuple[int, ...],
    drafts: int,
    out: Tensor,
    kept: list[Tensor],
) -> bytes:
    """Its pool's numbers lie at any strides, and its constants are read as they are stored."""
    (_, columns, channels), taps, steps = state.shape, x.weight.shape[1], state.stride()
    check(taps, columns, drafts)
    if _is_spread(state.shape, steps):
        raise Refused
    tokens = x.x if x.x.stride()[-1] == 1 else _dense(x.x, kept)
    stored: list[tuple[int, int]] = []
    for tensor in (x.weight, x.bias):
        if tensor is not None and not tensor.is_contiguous():
            tensor = _dense(tensor, kept)
        stored.append((0, 0) if tensor is None else (tensor.data_ptr(), TYPES[tensor.dtype]))
    (weight, weight_type), (bias, bias_type) = stored
    return _CONV.pack(
        *batch,
        state.data_ptr(),
        TYPES[state.dtype],
        *steps,
        columns,
        drafts,
        tokens.data_ptr(),
        TYPES[tokens.dtype],
        *tokens.stride(),
        *_written(out),
        weight,
        bias,
        weight_type,
        bias_type,
        channels,
        taps,
        x.activation == "silu",
    )
