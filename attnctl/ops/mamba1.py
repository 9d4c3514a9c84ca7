"""The selective scan of Mamba 1: the specification, in plain torch.

Per channel c with state h: [C, R], step dt, input matrices b and c of the token:
  dt = softplus(dt + dt_bias)      softplus only where the layer asks for it
  h <- exp(dt A) h + dt b x        A: [C, R], dt and x a number per channel
  y  = h c + D x
  y  = y silu(z)                   where there is a gate
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from attnctl.ops.states import advance_rows
from attnctl.runtime import StateMetadata


class Mamba1(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of T tokens and the layer's constants.

    x, dt: [T, C]. b, c: [T, R]. z: [T, C] or None. a: [C, R], negative. d, dt_bias: [C] or None.
    """

    x: Tensor
    dt: Tensor
    b: Tensor
    c: Tensor
    a: Tensor
    z: Tensor | None = None
    d: Tensor | None = None
    dt_bias: Tensor | None = None
    softplus: bool = True

    per_token: ClassVar[tuple[str, ...]] = ("x", "dt", "b", "c", "z")


def mamba1(
    inputs: Mamba1,
    state: Tensor,
    metadata: StateMetadata,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """out: [T, C]; states in place. state: [slots, C, R]. dtype: what it computes in."""
    x, b, c = (value.to(dtype) for value in (inputs.x, inputs.b, inputs.c))
    a = inputs.a.to(dtype)
    dt = inputs.dt.to(dtype)
    if inputs.dt_bias is not None:
        dt = dt + inputs.dt_bias.to(dtype)
    if inputs.softplus:
        dt = softplus(dt)
    if out is None:
        out = x.new_zeros(x.shape)

    def advance(carried: Tensor, tokens: slice) -> tuple[Tensor, Tensor]:
        t = tokens.start
        decay = (dt[t, :, None] * a).exp()
        carried = decay * carried + (dt[t] * x[t])[:, None] * b[t]
        y = (carried * c[t]).sum(-1)
        if inputs.d is not None:
            y = y + inputs.d.to(dtype) * x[t]
        if inputs.z is not None:
            y = y * silu(inputs.z[t].to(dtype))
        return carried, y[None]

    advance_rows(state, metadata, advance, out, dtype)
    return out
