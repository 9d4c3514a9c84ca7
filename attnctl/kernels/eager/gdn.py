"""The gated delta rule in torch, one token of every sequence at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from attnctl.kernels.eager.walk import contract, walk
from attnctl.ops.gdn import NORM_EPSILON, Gdn
from attnctl.runtime import StateMetadata


def forward(inputs: Gdn, state: Tensor, metadata: StateMetadata, out: Tensor) -> None:
    """out: [T, Hv, Dv]; state: [slots, Hv, Dv, D], in place."""
    q, k = _unit(inputs.q, inputs), _unit(inputs.k, inputs)
    v, beta, decay = inputs.v.float(), inputs.beta.float(), _decay(inputs)
    group = v.shape[1] // q.shape[1]

    def step(carried: Tensor, tokens: Tensor) -> None:
        keys, queries = (x[tokens].repeat_interleave(group, 1) for x in (k, q))
        carried *= decay[tokens][:, :, None, :]
        held = contract(carried, keys)
        update = (v[tokens] - held) * beta[tokens][:, :, None]
        carried.addcmul_(update[:, :, :, None], keys[:, :, None, :])
        out[tokens] = (contract(carried, queries) * inputs.scale).to(out.dtype)

    walk(state, metadata, step)


def _unit(rows: Tensor, inputs: Gdn) -> Tensor:
    rows = rows.float()
    if not inputs.l2norm:
        return rows
    return rows / torch.sqrt((rows * rows).sum(-1, keepdim=True) + NORM_EPSILON)


def _decay(inputs: Gdn) -> Tensor:
    """What each step multiplies the state with: [T, Hv, 1 or D]."""
    g = inputs.g.float()
    if g.dim() == 2:
        g = g.unsqueeze(-1)
    if inputs.a_log is None:
        return g.exp()
    if inputs.dt_bias is not None:
        g = g + inputs.dt_bias.float().reshape(g.shape[1], -1)
    return torch.exp(softplus(g) * -inputs.a_log.float().exp()[:, None])
