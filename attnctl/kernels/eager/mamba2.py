"""State-space duality in torch, one token of every sequence at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from attnctl.kernels.eager.walk import contract, walk
from attnctl.ops.mamba2 import Mamba2
from attnctl.runtime import StateMetadata


def forward(inputs: Mamba2, state: Tensor, metadata: StateMetadata, out: Tensor) -> None:
    """out: [T, H, Dv]; state: [slots, H, Dv, R], in place."""
    a, heads = inputs.a.float(), inputs.x.shape[1]
    group = heads // inputs.b.shape[1]
    bias = None if inputs.dt_bias is None else inputs.dt_bias.float()
    skip = None if inputs.d is None else inputs.d.float().reshape(heads, -1)

    def step(carried: Tensor, tokens: Tensor) -> None:
        x, dt = inputs.x[tokens].float(), inputs.dt[tokens].float()
        if bias is not None:
            dt = dt + bias
        if inputs.softplus:
            dt = softplus(dt)
        dt = dt.clamp(min=inputs.dt_limit[0], max=inputs.dt_limit[1])
        b = inputs.b[tokens].float().repeat_interleave(group, 1)
        c = inputs.c[tokens].float().repeat_interleave(group, 1)
        carried *= torch.exp(dt * a)[:, :, None, None]
        carried.addcmul_((x * dt[:, :, None])[..., None], b[:, :, None, :])
        y = contract(carried, c)
        if skip is not None:
            y = y + skip * x
        if inputs.z is not None:
            y = y * silu(inputs.z[tokens].float())
        out[tokens] = y.to(out.dtype)

    walk(state, metadata, step)
