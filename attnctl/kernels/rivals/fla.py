"""flash-linear-attention: the gated delta rule, with a gate per head or channel, and lightning."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from attnctl.kernels.libraries import Load
from attnctl.kernels.rivals import loaded
from attnctl.kernels.rivals.rows import keep, put, take
from attnctl.ops.gdn import Gdn
from attnctl.ops.linear import Linear
from attnctl.runtime import StateMetadata


def gdn(inputs: Gdn, state: Tensor, metadata: StateMetadata, out: Tensor, load: Load) -> None:
    """out: [T, Hv, Dv]; state: [slots, Hv, Dv, D], transposed on the way: fla has keys first."""
    rows = take("fla", state, metadata, out.shape[0])
    name = "kda" if inputs.g.dim() == 3 else "gated_delta_rule"
    call = _form(load, name, inputs.q, metadata)
    found, final = call(
        inputs.q[None], inputs.k[None], inputs.v[None], g=log_decay(inputs)[None],
        beta=inputs.beta[None], scale=inputs.scale,
        initial_state=rows.initial.float().mT.contiguous(), output_final_state=True,
        use_qk_l2norm_in_kernel=inputs.l2norm, cu_seqlens=rows.starts,
    )  # fmt: skip
    put(out, found[0], rows)
    keep(state, rows, final.mT)


def linear(inputs: Linear, state: Tensor, metadata: StateMetadata, out: Tensor, load: Load) -> None:
    """out: [T, H, Dv]; state: [slots, H, D, Dv]."""
    rows = take("fla", state, metadata, out.shape[0])
    found, final = _form(load, "simple_gla", inputs.q, metadata)(
        inputs.q[None], inputs.k[None], inputs.v[None], g_gamma=-inputs.slope.float(),
        scale=inputs.scale, initial_state=rows.initial.float(), output_final_state=True,
        cu_seqlens=rows.starts,
    )  # fmt: skip
    put(out, found[0], rows)
    keep(state, rows, final)


def log_decay(inputs: Gdn) -> Tensor:
    """The decay that the kernels take: [T, Hv] or [T, Hv, D] float32, a logarithm."""
    g = inputs.g.float()
    if inputs.a_log is None:
        return g
    rate = inputs.a_log.float().exp()
    bias = 0.0 if inputs.dt_bias is None else inputs.dt_bias.float()
    return -(rate[:, None] if g.dim() == 3 else rate) * softplus(g + bias)


def _form(load: Load, name: str, query: Tensor, metadata: StateMetadata) -> Any:
    """The recurrent function for single tokens and for float32, the chunked one otherwise."""
    module = loaded("fla", load, f"fla.ops.{name}")
    step = metadata.max_query_len == 1 or query.dtype == torch.float32
    return getattr(module, f"{'fused_recurrent' if step else 'chunk'}_{name}")
