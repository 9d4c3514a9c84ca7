"""The state-space operations in plain torch, a token or a chunk of every row, to be compiled."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus


def _gate(g: Tensor, a_log: Tensor, dt_bias: Tensor) -> Tensor:
    g = g.float() + dt_bias
    rate = -a_log.exp()
    return (rate[:, None] if g.dim() == 4 else rate) * softplus(g)


def _unit(x: Tensor) -> Tensor:
    x = x.float()
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def gdn_step(state, slots, q, k, v, g, beta, a_log, dt_bias, scale):
    """One token of every row; the states of the pool in place."""
    group = v.shape[2] // q.shape[2]
    q, k = (_unit(x[:, 0]).repeat_interleave(group, 1) for x in (q, k))
    decay = _gate(g, a_log, dt_bias)[:, 0].exp()
    decay = decay[:, :, None, :] if decay.dim() == 3 else decay[:, :, None, None]
    s = state[slots] * decay
    update = beta[:, 0, :, None] * (v[:, 0].float() - (s * k[:, :, None]).sum(-1))
    s = s + update[..., None] * k[:, :, None]
    state[slots] = s
    return (s * q[:, :, None]).sum(-1)[:, None] * scale


def gdn_chunk(s, q, k, v, g, beta, a_log, dt_bias, scale):
    """A chunk of every row; with a gate per channel the decays lie inside the products."""
    group = v.shape[2] // q.shape[2]
    q, k = (_unit(x).repeat_interleave(group, 2).transpose(1, 2) for x in (q, k))
    v, beta = v.float().transpose(1, 2), beta.transpose(1, 2)[..., None]
    g = _gate(g, a_log, dt_bias)
    total = (g if g.dim() == 4 else g[..., None]).transpose(1, 2).cumsum(2)
    count = q.shape[2]
    seen = torch.ones(count, count, dtype=torch.bool).tril()
    if g.dim() == 4:
        between = (total[:, :, :, None] - total[:, :, None]).clamp(max=0).exp()
        overlap = ((k[:, :, :, None] * k[:, :, None]) * between).sum(-1)
        scores = ((q[:, :, :, None] * k[:, :, None]) * between).sum(-1)
    else:
        between = (total - total.mT).masked_fill(~seen, 0).exp()
        overlap, scores = k @ k.mT * between, q @ k.mT * between
    system = (overlap * beta).tril(-1) + torch.eye(count)
    since, left = total.exp(), (total[:, :, -1:] - total).exp()
    wanted = beta * (v - (k * since) @ s.mT)
    update = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    out = (q * since) @ s.mT + scores.tril() @ update
    return s * since[:, :, -1:] + update.mT @ (k * left), out.transpose(1, 2) * scale


def mamba1_step(state, slots, x, dt, b, c, z, a, d, dt_bias):
    """One token of every row."""
    dt, x = softplus(dt.float() + dt_bias), x.float()
    s = (dt[..., None] * a).exp() * state[slots] + (dt * x)[..., None] * b.float()[:, None]
    state[slots] = s
    y = (s * c.float()[:, None]).sum(-1) + d * x
    return y * silu(z.float())


def mamba2_step(state, slots, x, dt, b, c, a, d, dt_bias):
    """One token of every row."""
    group = x.shape[1] // b.shape[1]
    b, c = (v.float().repeat_interleave(group, 1) for v in (b, c))
    dt, x = softplus(dt.float() + dt_bias), x.float()
    s = (dt * a).exp()[..., None, None] * state[slots] + (dt[..., None] * x)[..., None] * b[
        :, :, None
    ]
    state[slots] = s
    return (s * c[:, :, None]).sum(-1) + d[:, None] * x


def mamba2_chunk(s, x, dt, b, c, a, d, dt_bias):
    """A chunk of every row."""
    group = x.shape[2] // b.shape[2]
    b, c = (v.float().transpose(1, 2) for v in (b, c))
    overlap = (c @ b.mT).repeat_interleave(group, 1)
    b, c = (v.repeat_interleave(group, 1) for v in (b, c))
    dt, x = softplus(dt.float() + dt_bias).transpose(1, 2), x.float().transpose(1, 2)
    s, y = _decayed(s, c, b, overlap, dt[..., None] * x, dt * a[:, None])
    return s, (y + d[:, None, None] * x).transpose(1, 2)


def linear_step(state, slots, q, k, v, slope):
    """One token of every row; the state is K before V."""
    q, k, v = q.float(), k.float(), v.float()
    s = (-slope).exp()[:, None, None] * state[slots] + k[..., None] * v[:, :, None]
    state[slots] = s
    return (s * q[..., None]).sum(-2)


def linear_chunk(s, q, k, v, slope):
    """A chunk of every row."""
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))
    decay = (-slope)[None, :, None].expand(q.shape[:3])
    s, out = _decayed(s.mT, q, k, q @ k.mT, v, decay)
    return s.mT.contiguous(), out.transpose(1, 2)


def _decayed(s, q, k, overlap, v, decay):
    total = decay.cumsum(2)[..., None]
    count = total.shape[2]
    seen = torch.ones(count, count, dtype=torch.bool).tril()
    scores = overlap * (total - total.mT).masked_fill(~seen, -torch.inf).exp()
    out = scores @ v + (q * total.exp()) @ s.mT
    left = (total[:, :, -1:] - total).exp()
    return s * total[:, :, -1:].exp() + (v * left).mT @ k, out


def conv_rows(state, slots, x, weight, bias):
    """Whole rows [B, tokens, C] at once."""
    width = weight.shape[1]
    padded = torch.cat([state[slots], x], 1)
    state[slots] = padded[:, padded.shape[1] - width + 1 :]
    y, w = bias.float(), weight.float()
    for tap in range(width):
        y = y + padded[:, tap : tap + x.shape[1]].float() * w[:, tap]
    return silu(y).to(x.dtype)
