"""MAMBA2_ATTN's runtime: state-space duality."""

from __future__ import annotations

from attnctl.kernels.state_runtime import Shape, StateAttention
from attnctl.ops.mamba2 import Mamba2


def _shapes(inputs: Mamba2) -> tuple[Shape, Shape]:
    return (*inputs.x.shape[1:], inputs.b.shape[2]), tuple(inputs.x.shape)


RUNTIME = StateAttention("MAMBA2_ATTN", "mamba2", ("mamba2",), _shapes, ("mamba_ssm",))
