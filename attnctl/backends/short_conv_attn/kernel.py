"""SHORT_CONV_ATTN's runtime: the causal depthwise convolution, alone or before a recurrence."""

from __future__ import annotations

from attnctl.kernels.state_runtime import Shape, StateAttention
from attnctl.ops.short_conv import ShortConv

ANY = -1


def _shapes(inputs: ShortConv) -> tuple[Shape, Shape]:
    return (ANY, inputs.x.shape[1]), tuple(inputs.x.shape)


RUNTIME = StateAttention(
    "SHORT_CONV_ATTN", "short_conv", ("short_conv",), _shapes, ("causal_conv1d",)
)
