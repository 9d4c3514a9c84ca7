"""What else computes a state-space operation on a processor, as callables over the same tensors.

eager: the bundled fallback. compiled: torch.compile of the chunked form where there is one, else of
one token's step; the walk over chunks stays in Python, for unrolled it takes minutes to compile.
vllm: the ops of vLLM 0.32's CPU wheel, called as its layers call them. A peer is None where it has
no such operation. Each leaves its outputs in what it returns, and works on states of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from states_problems import Problem
from torch import Tensor
from torch.nn.functional import conv1d, silu, softplus

Run = Callable[[], Tensor]

CHUNK = 64


def eager(problem: Problem) -> Run:
    forward = import_module(f"attnctl.kernels.eager.{problem.shape.op}").forward
    state, metadata = problem.state.clone(), problem.metadata()
    out = torch.empty_like(problem.out)

    def run() -> Tensor:
        forward(problem.inputs, state, metadata, out)
        return out

    return run


def compiled(problem: Problem) -> Run | None:
    shape = problem.shape
    if shape.drafts:
        return None
    make = _COMPILED[shape.op]
    return make(problem, problem.state.clone(), problem.slots[:, 0].long())


def vllm(problem: Problem) -> Run | None:
    shape = problem.shape
    if shape.op == "linear" or shape.kda or (shape.op == "mamba1" and shape.queries > 1):
        return None
    return _VLLM[shape.op](problem)


# ---- torch.compile ----


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


def _rows(tensor: Tensor, problem: Problem) -> Tensor:
    """[T, ...] of equal rows as [B, tokens, ...]."""
    return tensor.unflatten(0, (problem.shape.batch, problem.shape.queries))


def _gate(g: Tensor, a_log: Tensor, dt_bias: Tensor) -> Tensor:
    g = g.float() + dt_bias
    rate = -a_log.exp()
    return (rate[:, None] if g.dim() == 4 else rate) * softplus(g)


def _unit(x: Tensor) -> Tensor:
    x = x.float()
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def gdn_step(state, slots, q, k, v, g, beta, a_log, dt_bias, scale):  # type: ignore[no-untyped-def]
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


def gdn_chunk(s, q, k, v, g, beta, a_log, dt_bias, scale):  # type: ignore[no-untyped-def]
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


def mamba1_step(state, slots, x, dt, b, c, z, a, d, dt_bias):  # type: ignore[no-untyped-def]
    """One token of every row."""
    dt, x = softplus(dt.float() + dt_bias), x.float()
    s = (dt[..., None] * a).exp() * state[slots] + (dt * x)[..., None] * b.float()[:, None]
    state[slots] = s
    y = (s * c.float()[:, None]).sum(-1) + d * x
    return y * silu(z.float())


def mamba2_step(state, slots, x, dt, b, c, a, d, dt_bias):  # type: ignore[no-untyped-def]
    """One token of every row."""
    group = x.shape[1] // b.shape[1]
    b, c = (v.float().repeat_interleave(group, 1) for v in (b, c))
    dt, x = softplus(dt.float() + dt_bias), x.float()
    s = (dt * a).exp()[..., None, None] * state[slots] + (dt[..., None] * x)[..., None] * b[
        :, :, None
    ]
    state[slots] = s
    return (s * c[:, :, None]).sum(-1) + d[:, None] * x


def mamba2_chunk(s, x, dt, b, c, a, d, dt_bias):  # type: ignore[no-untyped-def]
    """A chunk of every row."""
    group = x.shape[2] // b.shape[2]
    b, c = (v.float().transpose(1, 2) for v in (b, c))
    overlap = (c @ b.mT).repeat_interleave(group, 1)
    b, c = (v.repeat_interleave(group, 1) for v in (b, c))
    dt, x = softplus(dt.float() + dt_bias).transpose(1, 2), x.float().transpose(1, 2)
    s, y = _decayed(s, c, b, overlap, dt[..., None] * x, dt * a[:, None])
    return s, (y + d[:, None, None] * x).transpose(1, 2)


def linear_step(state, slots, q, k, v, slope):  # type: ignore[no-untyped-def]
    """One token of every row; the state is K before V."""
    q, k, v = q.float(), k.float(), v.float()
    s = (-slope).exp()[:, None, None] * state[slots] + k[..., None] * v[:, :, None]
    state[slots] = s
    return (s * q[..., None]).sum(-2)


def linear_chunk(s, q, k, v, slope):  # type: ignore[no-untyped-def]
    """A chunk of every row."""
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))
    decay = (-slope)[None, :, None].expand(q.shape[:3])
    s, out = _decayed(s.mT, q, k, q @ k.mT, v, decay)
    return s.mT.contiguous(), out.transpose(1, 2)


def _decayed(s, q, k, overlap, v, decay):  # type: ignore[no-untyped-def]
    total = decay.cumsum(2)[..., None]
    count = total.shape[2]
    seen = torch.ones(count, count, dtype=torch.bool).tril()
    scores = overlap * (total - total.mT).masked_fill(~seen, -torch.inf).exp()
    out = scores @ v + (q * total.exp()) @ s.mT
    left = (total[:, :, -1:] - total).exp()
    return s * total[:, :, -1:].exp() + (v * left).mT @ k, out


def conv_rows(state, slots, x, weight, bias):  # type: ignore[no-untyped-def]
    """Whole rows [B, tokens, C] at once."""
    width = weight.shape[1]
    padded = torch.cat([state[slots], x], 1)
    state[slots] = padded[:, padded.shape[1] - width + 1 :]
    y, w = bias.float(), weight.float()
    for tap in range(width):
        y = y + padded[:, tap : tap + x.shape[1]].float() * w[:, tap]
    return silu(y).to(x.dtype)


def _chunks(
    problem: Problem, state: Tensor, slots: Tensor, chunk: Any, tokens: tuple[str, ...], rest: Any
) -> Run:
    function, out = _compile(chunk), torch.empty_like(problem.out)
    rows = [_rows(getattr(problem.inputs, name), problem) for name in tokens]
    target = _rows(out, problem)

    def run() -> Tensor:
        carried = state[slots]
        for begin in range(0, problem.shape.queries, CHUNK):
            part = slice(begin, begin + CHUNK)
            carried, target[:, part] = function(carried, *(x[:, part] for x in rows), *rest)
        state[slots] = carried
        return out

    return run


def _steps(
    problem: Problem, state: Tensor, slots: Tensor, step: Any, tokens: tuple[str, ...], rest: Any
) -> Run:
    function, out = _compile(step), torch.empty_like(problem.out)
    rows = [_rows(getattr(problem.inputs, name), problem) for name in tokens]
    target = _rows(out, problem)

    def run() -> Tensor:
        for t in range(problem.shape.queries):
            target[:, t] = function(state, slots, *(x[:, t] for x in rows), *rest)
        return out

    return run


def _compiled_gdn(problem: Problem, state: Tensor, slots: Tensor) -> Run:
    x = problem.inputs
    rest = (x.a_log, x.dt_bias, x.scale)
    if problem.shape.queries > 1:
        return _chunks(problem, state, slots, gdn_chunk, x.per_token, rest)
    function, rows = _compile(gdn_step), [_rows(getattr(x, n), problem) for n in x.per_token]
    return lambda: function(state, slots, *rows, *rest).flatten(0, 1)


def _compiled_mamba1(problem: Problem, state: Tensor, slots: Tensor) -> Run:
    x = problem.inputs
    return _steps(problem, state, slots, mamba1_step, x.per_token, (x.a, x.d, x.dt_bias))


def _compiled_mamba2(problem: Problem, state: Tensor, slots: Tensor) -> Run:
    x, tokens = problem.inputs, ("x", "dt", "b", "c")
    walk, function = (_chunks, mamba2_chunk) if problem.shape.queries > 1 else (_steps, mamba2_step)
    return walk(problem, state, slots, function, tokens, (x.a, x.d, x.dt_bias))


def _compiled_linear(problem: Problem, state: Tensor, slots: Tensor) -> Run:
    x = problem.inputs
    walk, function = (_chunks, linear_chunk) if problem.shape.queries > 1 else (_steps, linear_step)
    return walk(problem, state, slots, function, x.per_token, (x.slope,))


def _compiled_conv(problem: Problem, state: Tensor, slots: Tensor) -> Run:
    x, function = problem.inputs, _compile(conv_rows)
    rows = _rows(x.x, problem)
    return lambda: function(state, slots, rows, x.weight, x.bias).flatten(0, 1)


_COMPILED = {
    "gdn": _compiled_gdn,
    "mamba1": _compiled_mamba1,
    "mamba2": _compiled_mamba2,
    "short_conv": _compiled_conv,
    "linear": _compiled_linear,
}


# ---- vLLM ----


def _vllm_gdn(problem: Problem) -> Run:
    x, shape, ops = problem.inputs, problem.shape, torch.ops._C
    state = problem.state.mT.contiguous()  # its kernels keep K before V
    a = x.g.contiguous()
    b = torch.logit(x.beta).bfloat16()
    bias, starts = x.dt_bias.bfloat16(), problem.starts
    q, k, v = (t[None] for t in (x.q, x.k, x.v))
    if shape.drafts:
        accepted = torch.full((shape.batch,), 2, dtype=torch.int32)
        return lambda: ops.fused_sigmoid_gating_delta_rule_update_spec_cpu(
            x.a_log, bias, x.q, x.k, x.v, a, b, state, problem.slots, accepted, starts, True, 1.0,
            20.0,
        )  # fmt: skip
    slots = problem.slots[:, 0].contiguous()
    if shape.queries == 1:
        return lambda: ops.fused_sigmoid_gating_delta_rule_update_cpu(
            x.a_log, bias, q, k, v, a, b, state, slots, starts, True, 1.0, 20.0
        ).flatten(0, 1)  # fmt: skip

    def run() -> Tensor:
        g, beta = ops.fused_gdn_gating_cpu(x.a_log, a, b, bias)
        out, _ = ops.chunk_gated_delta_rule_cpu(
            q, k, v, g, beta, state, True, starts, False, True, slots, 1e-6
        )
        return out[0]

    return run


def _update(problem: Problem, wide: Callable[[Tensor], Tensor], heads: tuple[Tensor, ...]) -> Run:
    """selective_state_update of one token; heads: A, D and dt_bias as it wants them."""
    x, state = problem.inputs, problem.state.clone()
    a, d, bias = heads
    slots, out = problem.slots[:, 0].contiguous(), torch.empty_like(wide(problem.out))
    z = None if x.z is None else wide(x.z)
    values, dt = wide(x.x), wide(x.dt) if x.dt.shape == x.x.shape else x.dt
    if dt.dim() == 2:
        dt = dt[..., None].expand(values.shape)
    b, c = (t if t.dim() == 3 else t[:, None] for t in (x.b, x.c))
    pool = state if state.dim() == 4 else state[:, None]

    def run() -> Tensor:
        torch.ops._C.selective_state_update_cpu(
            pool, values, dt, a, b, c, d, z, bias, True, slots, None, 0, out, None, None
        )
        return out.view(problem.out.shape)

    return run


def _vllm_mamba1(problem: Problem) -> Run:
    x = problem.inputs
    return _update(problem, lambda t: t[:, None], (x.a[None], x.d[None], x.dt_bias[None]))


def _vllm_mamba2(problem: Problem) -> Run:
    x, shape = problem.inputs, problem.shape
    if shape.queries == 1:
        width, size = x.x.shape[2], x.b.shape[2]
        a = x.a[:, None, None].expand(-1, width, size)
        d, bias = (t[:, None].expand(-1, width) for t in (x.d, x.dt_bias))
        return _update(problem, lambda t: t, (a, d, bias))
    state, slots = problem.state.clone(), problem.slots[:, 0].long()
    out = torch.empty_like(problem.out)

    def run() -> Tensor:
        dt = softplus(x.dt.float() + x.dt_bias)
        states = torch.zeros((shape.batch, *state.shape[1:]))
        states.copy_(state[slots])
        torch.ops._C.mamba_chunk_scan_fwd_cpu(
            out, states, x.x, dt, x.a, x.b, x.c, x.d, None, problem.starts
        )
        state[slots] = states
        return out

    return run


def _vllm_conv(problem: Problem) -> Run:
    x, shape = problem.inputs, problem.shape
    state = problem.state.mT.contiguous().clone()  # [slots, C, taps - 1]
    slots = problem.slots[:, 0].contiguous()
    if shape.queries == 1:
        return lambda: torch.ops._C.causal_conv1d_update_cpu_vec(
            x.x, state, x.weight, x.bias, "silu", slots, None, 0
        )
    # prefill is torch's conv1d a sequence at a time there, over channels x tokens
    columns, weight, taps = x.x.T.contiguous(), x.weight[:, None], x.weight.shape[1]

    def run() -> Tensor:
        out = torch.empty_like(columns)
        for b, slot in enumerate(slots.tolist()):
            part = slice(b * shape.queries, (b + 1) * shape.queries)
            padded = torch.cat([state[slot], columns[:, part]], 1)
            y = conv1d(padded[None], weight, x.bias, groups=weight.shape[0])
            out[:, part] = silu(y[0])
            state[slot] = padded[:, padded.shape[1] - taps + 1 :]
        return out.T

    return run


_VLLM = {
    "gdn": _vllm_gdn,
    "mamba1": _vllm_mamba1,
    "mamba2": _vllm_mamba2,
    "short_conv": _vllm_conv,
}
