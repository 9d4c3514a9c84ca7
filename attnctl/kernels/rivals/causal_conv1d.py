"""causal-conv1d: single tokens of a batch at once; longer rows one after the other."""

from __future__ import annotations

from torch import Tensor

from attnctl.kernels.libraries import Load
from attnctl.kernels.rivals import loaded, refuse
from attnctl.kernels.rivals.mamba_ssm import spans
from attnctl.kernels.rivals.rows import keep, put, take
from attnctl.ops.short_conv import ShortConv
from attnctl.runtime import StateMetadata


def short_conv(
    inputs: ShortConv, state: Tensor, metadata: StateMetadata, out: Tensor, load: Load
) -> None:
    """out: [T, C]; state: [slots, W - 1, C], no drafts. Channels are its second dimension."""
    longer = metadata.num_spec > 0 or state.shape[1] != inputs.weight.shape[1] - 1
    refuse("causal_conv1d", longer, "its state has no columns beyond the width")
    module = loaded("causal_conv1d", load, "causal_conv1d")
    rows = take("causal_conv1d", state, metadata, out.shape[0])
    layer = {"weight": inputs.weight, "bias": inputs.bias, "activation": inputs.activation}
    # channels last in memory, as its kernel for initial states wants them
    held = rows.initial.to(inputs.x.dtype).mT
    single = metadata.max_query_len == 1
    if single:
        token = rows.starts[:-1].clamp(max=out.shape[0] - 1)
        found = module.causal_conv1d_update(inputs.x[token], held, **layer)
        put(out, found[rows.owner.clamp(max=found.shape[0] - 1)], rows)
    for b, at in [] if single else spans(rows):
        found, last = module.causal_conv1d_fn(
            inputs.x[None, at].mT, initial_states=held[b : b + 1], return_final_states=True, **layer
        )
        out[at] = found[0].mT.to(out.dtype)
        held[b] = last[0]
    keep(state, rows, held.mT)
