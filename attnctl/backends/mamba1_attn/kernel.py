"""MAMBA1_ATTN's runtime: the selective scan."""

from __future__ import annotations

from attnctl.kernels.states.runtime import StateAttention

RUNTIME = StateAttention("MAMBA1_ATTN", "mamba1", ("mamba1",), ("mamba_ssm",))
