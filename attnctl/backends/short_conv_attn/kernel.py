"""SHORT_CONV_ATTN's runtime: the causal depthwise convolution, alone or before a recurrence."""

from __future__ import annotations

from attnctl.kernels.states.runtime import StateAttention

RUNTIME = StateAttention("SHORT_CONV_ATTN", "short_conv", ("short_conv",), ("causal_conv1d",))
