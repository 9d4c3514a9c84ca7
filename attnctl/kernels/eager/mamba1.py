"""The selective scan in torch, one token of every sequence at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from attnctl.kernels.eager.walk import contract, walk
from attnctl.ops.mamba1 import Mamba1
from attnctl.runtime import StateMetadata


def forward(inputs: Mamba1, state: Tensor, metadata: StateMetadata, out: Tensor) -> None:
    """out: [T, C]; state: [slots, C, R], in place."""
    a, d = inputs.a.float(), None if inputs.d is None else inputs.d.float()
    bias = None if inputs.dt_bias is None else inputs.dt_bias.float()

    def step(carried: Tensor, tokens: Tensor) -> None:
        x, dt = inputs.x[tokens].float(), inputs.dt[tokens].float()
        b, c = inputs.b[tokens].float(), inputs.c[tokens].float()
        if bias is not None:
            dt = dt + bias
        if inputs.softplus:
            dt = softplus(dt)
        carried *= torch.exp(dt[:, :, None] * a)
        carried.addcmul_((dt * x)[:, :, None], b[:, None, :])
        y = contract(carried, c)
        if d is not None:
            y = y + d * x
        if inputs.z is not None:
            y = y * silu(inputs.z[tokens].float())
        out[tokens] = y.to(out.dtype)

    walk(state, metadata, step)
