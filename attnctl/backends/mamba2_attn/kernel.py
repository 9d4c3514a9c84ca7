"""MAMBA2_ATTN's runtime: state-space duality."""

from __future__ import annotations

from attnctl.kernels.states.runtime import StateAttention

RUNTIME = StateAttention("MAMBA2_ATTN", "mamba2", ("mamba2",), ("mamba_ssm",))
