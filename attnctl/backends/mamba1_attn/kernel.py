"""MAMBA1_ATTN's runtime: the selective scan."""

from __future__ import annotations

from attnctl.kernels.state_runtime import Shape, StateAttention
from attnctl.ops.mamba1 import Mamba1


def _shapes(inputs: Mamba1) -> tuple[Shape, Shape]:
    return tuple(inputs.a.shape), tuple(inputs.x.shape)


RUNTIME = StateAttention("MAMBA1_ATTN", "mamba1", ("mamba1",), _shapes, ("mamba_ssm",))
