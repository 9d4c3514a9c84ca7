"""The peers' kernels of state-space operations, on the inputs and pools of ours.

PEER names a folder of unpacked wheels (vLLM 0.33's Mamba and convolution kernels, fla-core 0.6), or
is unset and nothing is compared. A maker takes a batch of states_gpu.py and gives a call that
returns the outputs in our shape.
"""

from __future__ import annotations

import os
import sys

import torch
from vllm_stand_in import stand_in_for_vllm


def peers_of(op):
    """Name and maker of each peer of an operation that can be imported here."""
    folder = os.environ.get("PEER")
    if not folder:
        return {}
    if folder not in sys.path:
        sys.path.append(folder)
    makers = {"gdn": {"fla": fla_gdn}, "kda": {"fla": fla_kda}, "linear": {"fla": fla_linear}}
    makers |= {"mamba2": {"vllm": vllm_mamba2}, "mamba1": {"vllm": vllm_mamba1}}
    makers |= {"short_conv": {"vllm": vllm_conv}}
    return makers[op]


def initial(batch):
    """The rows' states; zero in prompts."""
    found = batch.pool[batch.slots.long()]
    return found if batch.known else torch.zeros_like(found)


def fla_gdn(batch):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule

    one = batch.inputs
    rows = batch.rows
    lead = (1, batch.tokens) if batch.length > 1 else (rows, 1)
    q, k, v, g, beta = (x.view(*lead, *x.shape[1:]) for x in (one.q, one.k, one.v, one.g, one.beta))
    state = initial(batch).mT.contiguous()
    common = {"scale": one.scale, "initial_state": state, "output_final_state": True}
    common["use_qk_l2norm_in_kernel"] = one.l2norm
    if batch.length == 1:
        return lambda: fused_recurrent_gated_delta_rule(q, k, v, g=g, beta=beta, **common)[0]
    starts = batch.starts.long()
    return lambda: chunk_gated_delta_rule(q, k, v, g, beta, cu_seqlens=starts, **common)[0]


def fla_kda(batch):
    from fla.ops.kda import chunk_kda, fused_recurrent_kda

    one = batch.inputs
    lead = (1, batch.tokens) if batch.length > 1 else (batch.rows, 1)
    q, k, v, g, beta = (x.view(*lead, *x.shape[1:]) for x in (one.q, one.k, one.v, one.g, one.beta))
    state = initial(batch).mT.contiguous()
    common = {"scale": one.scale, "initial_state": state, "output_final_state": True}
    common["use_qk_l2norm_in_kernel"] = one.l2norm
    if batch.length == 1:
        return lambda: fused_recurrent_kda(q, k, v, g=g, beta=beta, **common)[0]
    starts = batch.starts.long()
    return lambda: chunk_kda(q, k, v, g, beta, cu_seqlens=starts, **common)[0]


def fla_linear(batch):
    from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla

    one = batch.inputs
    lead = (1, batch.tokens) if batch.length > 1 else (batch.rows, 1)
    q, k, v = (x.view(*lead, *x.shape[1:]) for x in (one.q, one.k, one.v))
    state = initial(batch).contiguous()
    common = {"g_gamma": -one.slope, "scale": one.scale, "initial_state": state}
    common["output_final_state"] = True
    if batch.length == 1:
        return lambda: fused_recurrent_simple_gla(q, k, v, **common)[0]
    starts = batch.starts.long()
    return lambda: chunk_simple_gla(q, k, v, cu_seqlens=starts, **common)[0]


def vllm_mamba2(batch):
    ops = _vllm_ops()
    one, rows = batch.inputs, batch.rows
    heads, width = one.x.shape[1:]
    size = one.b.shape[2]
    out = torch.empty_like(one.x)
    if batch.length == 1:
        from vllm.model_executor.layers.mamba.ops.mamba_ssm import selective_state_update

        def spread(value, *widths):
            return value.view(heads, *[1] * len(widths)).expand(heads, *widths)

        rest = (spread(one.a, width, size), one.b, one.c, spread(one.d, width))
        dt, bias = one.dt[:, :, None].expand(rows, heads, width), spread(one.dt_bias, width)
        pool = batch.theirs

        def step():
            selective_state_update(
                pool, one.x, dt, *rest, dt_bias=bias, dt_softplus=True,
                state_batch_indices=batch.slots, out=out,
            )  # fmt: skip
            return out

        return step
    chunk = 256
    starts = list(range(0, batch.tokens + 1, min(chunk, batch.length)))
    per_row = -(-batch.length // chunk)
    chunks = torch.tensor(starts, device=one.x.device, dtype=torch.int32)
    last = torch.arange(rows, device=one.x.device, dtype=torch.int32) * per_row + per_row - 1
    owner = torch.arange(rows, device=one.x.device, dtype=torch.int32).repeat_interleave(per_row)

    def run():
        ops.mamba_chunk_scan_combined_varlen(
            one.x, one.dt, one.a, one.b, one.c, chunk, batch.starts, chunks, last, owner, out,
            D=one.d, dt_bias=one.dt_bias, dt_softplus=True, state_dtype=torch.float32,
        )  # fmt: skip
        return out

    return run


def _vllm_ops():
    stand_in_for_vllm(os.environ["PEER"])
    from vllm.model_executor.layers.mamba.ops import ssd_combined

    return ssd_combined


def vllm_mamba1(batch):
    if batch.length > 1:
        return None  # its prefill is a compiled operator that the wheel's Triton part does not hold
    stand_in_for_vllm(os.environ["PEER"])
    from vllm.model_executor.layers.mamba.ops.mamba_ssm import selective_state_update

    one = batch.inputs
    out, pool = torch.empty_like(one.x), batch.theirs

    def step():
        selective_state_update(
            pool, one.x, one.dt, one.a, one.b, one.c, one.d, one.dt_bias, dt_softplus=True,
            state_batch_indices=batch.slots, out=out,
        )  # fmt: skip
        return out

    return step


def vllm_conv(batch):
    stand_in_for_vllm(os.environ["PEER"])
    from vllm.model_executor.layers.mamba.ops.causal_conv1d import (
        causal_conv1d_fn,
        causal_conv1d_update,
    )

    one = batch.inputs
    state = batch.theirs.mT
    if batch.length == 1:
        # it works in place of its input
        x = one.x.clone()
        return lambda: causal_conv1d_update(
            x, state, one.weight, one.bias, "silu", conv_state_indices=batch.slots
        )
    known = torch.full((batch.rows,), batch.known, device=one.x.device)
    return lambda: causal_conv1d_fn(
        one.x.t(), one.weight, one.bias, state, batch.starts, batch.slots, known,
        activation="silu",
    ).t()  # fmt: skip
