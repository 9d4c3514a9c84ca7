"""State-space duality (Mamba 2): the specification, in plain torch.

Per head with state S: [Dv, R], a scalar a < 0 and the token's matrices b, c of the head's group:
  dt = softplus(dt + dt_bias), kept inside dt_limit
  S <- exp(dt a) S + dt x b^T
  y  = S c + d x
  y  = y silu(z)                   where there is a gate
Head h belongs to group h // (H / G).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from attnctl.ops.states import advance_rows, causal_decay
from attnctl.runtime import StateMetadata

CHUNK = 64


class Mamba2(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of T tokens and the layer's constants.

    x: [T, H, Dv]. dt: [T, H]. b, c: [T, G, R]. z: [T, H, Dv] or None. a: [H], negative.
    d: [H] or [H, Dv] or None. dt_bias: [H] or None. dt_limit: least and greatest step.
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
    dt_limit: tuple[float, float] = (0.0, float("inf"))

    per_token: ClassVar[tuple[str, ...]] = ("x", "dt", "b", "c", "z")


def mamba2(
    inputs: Mamba2,
    state: Tensor,
    metadata: StateMetadata,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    chunk: int = 1,
) -> Tensor:
    """out: [T, H, Dv]; states in place.

    state: [slots, H, Dv, R]. dtype: what it computes in, and what it returns without `out`.
    chunk: 1 is the recurrence as written above; more takes that many tokens at once.
    """
    x, a = inputs.x.to(dtype), inputs.a.to(dtype)
    group = x.shape[1] // inputs.b.shape[1]
    b, c = (value.to(dtype).repeat_interleave(group, 1) for value in (inputs.b, inputs.c))
    dt = time_step(inputs, dtype)
    if out is None:
        out = x.new_zeros(x.shape)

    def advance(carried: Tensor, tokens: slice) -> tuple[Tensor, Tensor]:
        written = dt[tokens, :, None] * x[tokens]
        move = recur if chunk == 1 else attend
        carried, y = move(carried, c[tokens], b[tokens], written, dt[tokens] * a)
        if inputs.d is not None:
            d = inputs.d.to(dtype)
            y = y + (d[:, None] if d.dim() == 1 else d) * x[tokens]
        if inputs.z is not None:
            y = y * silu(inputs.z[tokens].to(dtype))
        return carried, y

    advance_rows(state, metadata, advance, out, dtype, chunk)
    return out


def time_step(inputs: Mamba2, dtype: torch.dtype) -> Tensor:
    """dt as the recurrence uses it: [T, H]."""
    dt = inputs.dt.to(dtype)
    if inputs.dt_bias is not None:
        dt = dt + inputs.dt_bias.to(dtype)
    if inputs.softplus:
        dt = softplus(dt)
    return dt.clamp(*inputs.dt_limit)


def recur(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of linear attention with a decay per head; see attend for the shapes."""
    state = log_decay[0].exp()[:, None, None] * state + v[0, :, :, None] * k[0, :, None, :]
    return state, (state * q[0, :, None, :]).sum(-1)[None]


def attend(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor
) -> tuple[Tensor, Tensor]:
    """A stretch at once, as attention without softmax whose weights decay with distance.

    state: [H, Dv, D]. q, k: [T, H, D]. v: [T, H, Dv]. log_decay: [T, H]. Gives the state after it
    and the outputs [T, H, Dv].
    """
    since, between = causal_decay(log_decay)
    scores = torch.einsum("ihd,jhd,ijh->hij", q, k, between)
    out = torch.einsum("hij,jhv->ihv", scores, v)
    out = out + torch.einsum("hvd,ihd->ihv", state, q * since[:, :, None])
    state = since[-1][:, None, None] * state
    return state + torch.einsum("jhv,jhd->hvd", v * between[-1][:, :, None], k), out
