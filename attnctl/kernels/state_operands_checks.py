"""Which tensors the inputs of each state-space operation hold, and of which shapes they must be."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from numbers import Real
from typing import Any

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
"""A tensor's name, the tensor, and what its shape must be."""

Operands = tuple[Shape, Shape, list[Named]]
"""The shapes of a slot and of the output, and the tensors, first the one whose dtype is usual."""


def _sizes(name: str, what: str, tensor: Any, letters: str) -> Shape:
    """The extents of a tensor that decides those of others. InputError: it has another rank."""
    if not isinstance(tensor, Tensor) or tensor.dim() != letters.count(",") + 1:
        check_tensors(name, **{what: tensor})
        refuse(name, f"{what} must be [{letters}]; it is {list(tensor.shape)}")
    found: Shape = tensor.shape
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
    tokens, k_heads, width = _sizes(name, "q", x.q, "T, Hk, D")
    _, heads, width_v = _sizes(name, "v", x.v, "T, Hv, Dv")
    if not k_heads or heads % k_heads:
        refuse(name, f"{heads} value heads do not divide by {k_heads} key heads")
    if not isinstance(x.g, Tensor):
        check_tensors(name, g=x.g)
    keys, numbers, result = (tokens, k_heads, width), (tokens, heads), (tokens, heads, width_v)
    gates = (tokens, heads, width) if x.g.dim() == 3 else numbers
    rows: list[Named] = [
        ("q", x.q, keys),
        ("k", x.k, keys),
        ("v", x.v, result),
        ("g", x.g, gates),
        ("beta", x.beta, numbers),
    ]
    if x.a_log is not None:
        rows.append(("a_log", x.a_log, (heads,)))
    if x.dt_bias is not None:
        rows.append(("dt_bias", x.dt_bias, gates[1:]))
    _number(name, "scale", x.scale)
    _flag(name, "l2norm", x.l2norm)
    return (heads, width_v, width), result, rows


def _mamba1(name: str, x: Mamba1) -> Operands:
    tokens, channels = _sizes(name, "x", x.x, "T, C")
    _, width = _sizes(name, "a", x.a, "C, R")
    wide, narrow = (tokens, channels), (tokens, width)
    rows: list[Named] = [
        ("x", x.x, wide),
        ("dt", x.dt, wide),
        ("b", x.b, narrow),
        ("c", x.c, narrow),
        ("a", x.a, (channels, width)),
    ]
    if x.z is not None:
        rows.append(("z", x.z, wide))
    if x.d is not None:
        rows.append(("d", x.d, (channels,)))
    if x.dt_bias is not None:
        rows.append(("dt_bias", x.dt_bias, (channels,)))
    _flag(name, "softplus", x.softplus)
    return (channels, width), wide, rows


def _mamba2(name: str, x: Mamba2) -> Operands:
    tokens, heads, width_v = _sizes(name, "x", x.x, "T, H, Dv")
    _, groups, width = _sizes(name, "b", x.b, "T, G, R")
    if not groups or heads % groups:
        refuse(name, f"{heads} heads do not divide by {groups} groups")
    wide, shared, of_heads = (tokens, heads, width_v), (tokens, groups, width), (heads,)
    rows: list[Named] = [
        ("x", x.x, wide),
        ("dt", x.dt, (tokens, heads)),
        ("b", x.b, shared),
        ("c", x.c, shared),
        ("a", x.a, of_heads),
    ]
    if x.z is not None:
        rows.append(("z", x.z, wide))
    if x.d is not None:
        of_channels = isinstance(x.d, Tensor) and x.d.dim() == 2
        rows.append(("d", x.d, wide[1:] if of_channels else of_heads))
    if x.dt_bias is not None:
        rows.append(("dt_bias", x.dt_bias, of_heads))
    _flag(name, "softplus", x.softplus)
    limits = x.dt_limit
    if not isinstance(limits, tuple | list) or len(limits) != 2:
        refuse(name, f"dt_limit must be the least and the greatest step; it is {shown(limits)}")
    for limit in limits:
        _number(name, "a part of dt_limit", limit, finite=False)
    return (heads, width_v, width), wide, rows


def _linear(name: str, x: Linear) -> Operands:
    tokens, heads, width = _sizes(name, "q", x.q, "T, H, D")
    _, _, width_v = _sizes(name, "v", x.v, "T, H, Dv")
    keys, result = (tokens, heads, width), (tokens, heads, width_v)
    _number(name, "scale", x.scale)
    rows: list[Named] = [
        ("q", x.q, keys),
        ("k", x.k, keys),
        ("v", x.v, result),
        ("slope", x.slope, (heads,)),
    ]
    return (heads, width, width_v), result, rows


def _short_conv(name: str, x: ShortConv) -> Operands:
    tokens, channels = _sizes(name, "x", x.x, "T, C")
    _, taps = _sizes(name, "weight", x.weight, "C, W")
    rows: list[Named] = [("x", x.x, (tokens, channels)), ("weight", x.weight, (channels, taps))]
    if x.bias is not None:
        rows.append(("bias", x.bias, (channels,)))
    if x.activation is not None and x.activation != "silu":
        refuse(name, f"activation must be None or 'silu'; it is {shown(x.activation)}")
    return (ANY, channels), (tokens, channels), rows


OPERATIONS: dict[str, tuple[type, Callable[[str, Any], Operands]]] = {
    "gdn": (Gdn, _gdn),
    "mamba1": (Mamba1, _mamba1),
    "mamba2": (Mamba2, _mamba2),
    "linear": (Linear, _linear),
    "short_conv": (ShortConv, _short_conv),
}
