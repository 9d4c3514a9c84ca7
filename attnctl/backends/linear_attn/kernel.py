"""LINEAR_ATTN's runtime: lightning attention."""

from __future__ import annotations

from attnctl.kernels.state_runtime import Shape, StateAttention
from attnctl.ops.linear import Linear


def _shapes(inputs: Linear) -> tuple[Shape, Shape]:
    return (*inputs.k.shape[1:], inputs.v.shape[2]), tuple(inputs.v.shape)


RUNTIME = StateAttention("LINEAR_ATTN", "linear", ("linear", "lightning"), _shapes, ("fla",))
