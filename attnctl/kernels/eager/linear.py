"""Lightning attention in torch, one token of every sequence at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.eager.walk import contract, walk
from attnctl.ops.linear import Linear
from attnctl.runtime import StateMetadata


def forward(inputs: Linear, state: Tensor, metadata: StateMetadata, out: Tensor) -> None:
    """out: [T, H, Dv]; state: [slots, H, D, Dv], in place."""
    decay = torch.exp(-inputs.slope.float())[:, None, None]

    def step(carried: Tensor, tokens: Tensor) -> None:
        q, k = inputs.q[tokens].float(), inputs.k[tokens].float()
        v = inputs.v[tokens].float()
        carried *= decay
        carried.addcmul_(k[..., None], v[:, :, None, :])
        o = contract(carried.mT, q)
        out[tokens] = (o * inputs.scale).to(out.dtype)

    walk(state, metadata, step)
