"""LINEAR_ATTN's runtime: lightning attention."""

from __future__ import annotations

from attnctl.kernels.states.runtime import StateAttention

RUNTIME = StateAttention("LINEAR_ATTN", "linear", ("linear", "lightning"), ("fla",))
