"""The gated delta rule: the specification, in plain torch.

Per value head with state S: [Dv, D] (V before K), decay g (a logarithm) and write strength beta:
  S <- exp(g) S            with a gate per channel (KDA), column d of S times exp(g[d])
  u  = beta (v - S k)      what the state holds for this key is replaced, not added to
  S <- S + u k^T
  o  = S (scale q)
Value head h reads key head h // (Hv / Hk). With l2norm, q and k are divided by the root of their
squared sum plus 1e-6 first. With a_log the decay is computed here:
g = -exp(a_log) softplus(g + dt_bias).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
import torch
from torch import Tensor
from torch.nn.functional import softplus

from attnctl.ops.states import advance_rows, causal_decay
from attnctl.runtime import StateMetadata

NORM_EPSILON = 1e-6
"""Inside the root, as fla's l2norm and Qwen3-Next have it."""

CHUNK = 64


class Gdn(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of T tokens and the layer's constants.

    q, k: [T, Hk, D]. v: [T, Hv, Dv]. g: [T, Hv], or [T, Hv, D] for a gate per channel.
    beta: [T, Hv]. a_log: [Hv] float32; dt_bias: [Hv], or [Hv, D] with a gate per channel.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor
    scale: float
    l2norm: bool = False
    a_log: Tensor | None = None
    dt_bias: Tensor | None = None

    per_token: ClassVar[tuple[str, ...]] = ("q", "k", "v", "g", "beta")


def gdn(
    inputs: Gdn,
    state: Tensor,
    metadata: StateMetadata,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    chunk: int = 1,
) -> Tensor:
    """out: [T, Hv, Dv]; states in place.

    state: [slots, Hv, Dv, D]. dtype: what it computes in, and what it returns without `out`.
    chunk: 1 is the recurrence as written above; more solves that many tokens at once.
    """
    ready = prepared(inputs, dtype)
    if out is None:
        out = ready.v.new_zeros(ready.v.shape)

    def advance(carried: Tensor, tokens: slice) -> tuple[Tensor, Tensor]:
        q, k, v, g, beta = (getattr(ready, name)[tokens] for name in Gdn.per_token)
        if chunk == 1:
            carried, o = step(carried, q[0], k[0], v[0], g[0], beta[0])
            return carried, o[None]
        return solve(carried, q, k, v, g, beta)

    advance_rows(state, metadata, advance, out, dtype, chunk)
    return out


def prepared(inputs: Gdn, dtype: torch.dtype) -> Gdn:
    """In `dtype`, a key head for every value head, q scaled, g: [T, Hv, 1 or D] a log decay."""
    q, k = inputs.q.to(dtype), inputs.k.to(dtype)
    if inputs.l2norm:
        q, k = (x * (x.square().sum(-1, keepdim=True) + NORM_EPSILON).rsqrt() for x in (q, k))
    group = inputs.v.shape[1] // q.shape[1]
    g = inputs.g.to(dtype)
    g = g[..., None] if g.dim() == 2 else g
    if inputs.a_log is not None:
        bias = 0.0 if inputs.dt_bias is None else _per_channel(inputs.dt_bias.to(dtype))
        g = -inputs.a_log.to(dtype).exp()[:, None] * softplus(g + bias)
    return msgspec.structs.replace(
        inputs,
        q=q.repeat_interleave(group, 1) * inputs.scale,
        k=k.repeat_interleave(group, 1),
        v=inputs.v.to(dtype),
        g=g,
        beta=inputs.beta.to(dtype),
    )


def _per_channel(bias: Tensor) -> Tensor:
    return bias[:, None] if bias.dim() == 1 else bias


def step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """One token: the state [Hv, Dv, D] after it and its output [Hv, Dv]."""
    state = state * g.exp()[:, None, :]
    held = (state * k[:, None, :]).sum(-1)
    update = beta[:, None] * (v - held)
    state = state + update[:, :, None] * k[:, None, :]
    return state, (state * q[:, None, :]).sum(-1)


def solve(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """A stretch at once: each update depends on the earlier ones through a triangular system."""
    count, heads = v.shape[:2]
    since, between = causal_decay(g.expand(count, heads, k.shape[2]))
    overlap = torch.einsum("ihd,jhd,ijhd->hij", k, k, between)
    system = torch.eye(count, dtype=v.dtype, device=v.device)
    system = system + overlap.tril(-1) * beta.T[:, :, None]
    held = torch.einsum("hvd,ihd->ihv", state, k * since)
    wanted = (beta[:, :, None] * (v - held)).transpose(0, 1)
    update = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    scores = torch.einsum("ihd,jhd,ijhd->hij", q, k, between)
    out = torch.einsum("hvd,ihd->ihv", state, q * since)
    out = out + torch.einsum("hij,hjv->ihv", scores, update)
    state = state * since[-1][:, None, :]
    return state + torch.einsum("hjv,jhd->hvd", update, k * between[-1]), out
