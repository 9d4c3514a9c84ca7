"""GDN_ATTN's runtime: the gated delta rule, with a gate per head or per channel."""

from __future__ import annotations

from attnctl.kernels.state_runtime import Shape, StateAttention
from attnctl.ops.gdn import Gdn


def _shapes(inputs: Gdn) -> tuple[Shape, Shape]:
    return (*inputs.v.shape[1:], inputs.q.shape[2]), tuple(inputs.v.shape)


RUNTIME = StateAttention("GDN_ATTN", "gdn", ("gdn", "kda"), _shapes)
