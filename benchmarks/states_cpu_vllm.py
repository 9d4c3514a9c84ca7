"""vLLM 0.32's CPU ops of state-space operations, called as its layers call them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from states_cpu_peers import Run
from states_problems import Problem
from torch import Tensor
from torch.nn.functional import conv1d, silu, softplus


def vllm(problem: Problem) -> Run | None:
    shape = problem.shape
    if shape.op == "linear" or shape.kda or (shape.op == "mamba1" and shape.queries > 1):
        return None
    return _VLLM[shape.op](problem)


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
