"""Which tensors the inputs of each state-space operation hold, and of which shapes they must be."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

from torch import Tensor

from attnctl.arguments import shown
from attnctl.kernels.batch_checks import check_tensors, refuse
from attnctl.ops.gdn import Gdn
from attnctl.ops.linear import Linear
from attnctl.ops.mamba1 import Mamba1
from attnctl.ops.mamba2 import Mamba2
from attnctl.ops.short_conv import ShortConv

ANY = -1
"""The extent of a slot that the inputs do not decide: the columns of a convolution."""

Shape = tuple[int, ...]
Named = tuple[str, Any, Shape]
"""A tensor's name, the tensor, and what its shape must be; (): it was left out, as it may be."""


class Operands(NamedTuple):
    """The shapes of a slot and of the output, and the tensors: those of tokens, first the one whose
    dtype is usual, and a layer's constants."""

    slot: Shape
    result: Shape
    tokens: tuple[Named, ...]
    constants: tuple[Named, ...]


def _sizes(name: str, what: str, tensor: Any, letters: tuple[str, ...]) -> Shape:
    """The extents of a tensor that decides those of others. InputError: it has another rank."""
    if not isinstance(tensor, Tensor):
        check_tensors(name, **{what: tensor})
    found: Shape = tensor.shape
    if len(found) != len(letters):
        check_tensors(name, **{what: tensor})
        refuse(name, f"{what} must be [{', '.join(letters)}]; it is {list(found)}")
    return found


def _flag(name: str, what: str, value: Any) -> None:
    if value is not True and value is not False and not (type(value) is int and value in (0, 1)):
        refuse(name, f"{what} must be True or False; it is {shown(value)}")


def _number(name: str, what: str, value: Any, *, finite: bool = True) -> None:
    if type(value) is not float:
        try:
            real = isinstance(value, Real) and not isinstance(value, bool)
            value = float(value) if real else shown(value)
        except OverflowError:
            value = shown(value)
    if isinstance(value, str) or (finite and not isfinite(value)):
        refuse(name, f"{what} must be a {'finite ' * finite}number; it is {value}")


def _gdn(name: str, x: Gdn) -> Operands:
    tokens, k_heads, width = _sizes(name, "q", x.q, ("T", "Hk", "D"))
    _, heads, width_v = _sizes(name, "v", x.v, ("T", "Hv", "Dv"))
    if not k_heads or heads % k_heads:
        refuse(name, f"{heads} value heads do not divide by {k_heads} key heads")
    if not isinstance(x.g, Tensor):
        check_tensors(name, g=x.g)
    keys, numbers, result = (tokens, k_heads, width), (tokens, heads), (tokens, heads, width_v)
    gates = (tokens, heads, width) if x.g.dim() == 3 else numbers
    _number(name, "scale", x.scale)
    _flag(name, "l2norm", x.l2norm)
    return Operands(
        (heads, width_v, width),
        result,
        (
            ("q", x.q, keys),
            ("k", x.k, keys),
            ("v", x.v, result),
            ("g", x.g, gates),
            ("beta", x.beta, numbers),
        ),
        (
            ("a_log", x.a_log, () if x.a_log is None else (heads,)),
            ("dt_bias", x.dt_bias, () if x.dt_bias is None else gates[1:]),
        ),
    )


def _mamba1(name: str, x: Mamba1) -> Operands:
    tokens, channels = _sizes(name, "x", x.x, ("T", "C"))
    _, width = _sizes(name, "a", x.a, ("C", "R"))
    wide, narrow, each = (tokens, channels), (tokens, width), (channels,)
    _flag(name, "softplus", x.softplus)
    return Operands(
        (channels, width),
        wide,
        (
            ("x", x.x, wide),
            ("dt", x.dt, wide),
            ("b", x.b, narrow),
            ("c", x.c, narrow),
            ("z", x.z, () if x.z is None else wide),
        ),
        (
            ("a", x.a, (channels, width)),
            ("d", x.d, () if x.d is None else each),
            ("dt_bias", x.dt_bias, () if x.dt_bias is None else each),
        ),
    )


def _mamba2(name: str, x: Mamba2) -> Operands:
    tokens, heads, width_v = _sizes(name, "x", x.x, ("T", "H", "Dv"))
    _, groups, width = _sizes(name, "b", x.b, ("T", "G", "R"))
    if not groups or heads % groups:
        refuse(name, f"{heads} heads do not divide by {groups} groups")
    wide, shared, each = (tokens, heads, width_v), (tokens, groups, width), (heads,)
    _flag(name, "softplus", x.softplus)
    limits = x.dt_limit
    if not isinstance(limits, tuple | list) or len(limits) != 2:
        refuse(name, f"dt_limit must be the least and the greatest step; it is {shown(limits)}")
    for limit in limits:
        _number(name, "a part of dt_limit", limit, finite=False)
    of_channels = isinstance(x.d, Tensor) and x.d.dim() == 2
    return Operands(
        (heads, width_v, width),
        wide,
        (
            ("x", x.x, wide),
            ("dt", x.dt, (tokens, heads)),
            ("b", x.b, shared),
            ("c", x.c, shared),
            ("z", x.z, () if x.z is None else wide),
        ),
        (
            ("a", x.a, each),
            ("d", x.d, () if x.d is None else wide[1:] if of_channels else each),
            ("dt_bias", x.dt_bias, () if x.dt_bias is None else each),
        ),
    )


def _linear(name: str, x: Linear) -> Operands:
    tokens, heads, width = _sizes(name, "q", x.q, ("T", "H", "D"))
    _, _, width_v = _sizes(name, "v", x.v, ("T", "H", "Dv"))
    keys, result = (tokens, heads, width), (tokens, heads, width_v)
    _number(name, "scale", x.scale)
    return Operands(
        (heads, width, width_v),
        result,
        (("q", x.q, keys), ("k", x.k, keys), ("v", x.v, result)),
        (("slope", x.slope, (heads,)),),
    )


def _short_conv(name: str, x: ShortConv) -> Operands:
    tokens, channels = _sizes(name, "x", x.x, ("T", "C"))
    _, taps = _sizes(name, "weight", x.weight, ("C", "W"))
    if x.activation is not None and x.activation != "silu":
        refuse(name, f"activation must be None or 'silu'; it is {shown(x.activation)}")
    return Operands(
        (ANY, channels),
        (tokens, channels),
        (("x", x.x, (tokens, channels)),),
        (
            ("weight", x.weight, (channels, taps)),
            ("bias", x.bias, () if x.bias is None else (channels,)),
        ),
    )


OPERATIONS: dict[str, tuple[type[Any], Callable[[str, Any], Operands]]] = {
    "gdn": (Gdn, _gdn),
    "mamba1": (Mamba1, _mamba1),
    "mamba2": (Mamba2, _mamba2),
    "linear": (Linear, _linear),
    "short_conv": (ShortConv, _short_conv),
}
