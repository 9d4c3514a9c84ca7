"""FlashInfer's gated delta rule: chunks for every length, on Hopper and Blackwell."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.libraries import Load
from attnctl.kernels.rivals import loaded, refuse
from attnctl.kernels.rivals.fla import log_decay
from attnctl.kernels.rivals.rows import keep, put, take
from attnctl.ops.gdn import Gdn
from attnctl.runtime import StateMetadata


def gdn(inputs: Gdn, state: Tensor, metadata: StateMetadata, out: Tensor, load: Load) -> None:
    """out: [T, Hv, Dv]; state: [slots, Hv, Dv, D], D = Dv = 128. Its decay is no logarithm."""
    widths = {inputs.q.shape[2], inputs.v.shape[2]}
    refuse("flashinfer", inputs.g.dim() == 3, "it has no gate per channel")
    refuse("flashinfer", widths != {128}, "its heads are 128 wide")
    refuse("flashinfer", inputs.q.dtype == torch.float32, "it takes half precision")
    rows = take("flashinfer", state, metadata, out.shape[0])
    initial = rows.initial.float().contiguous()
    module = loaded("flashinfer", load, "flashinfer.gdn_prefill")
    found, final = module.chunk_gated_delta_rule(
        inputs.q.contiguous(), inputs.k.contiguous(), inputs.v.contiguous(),
        g=log_decay(inputs).exp(), beta=inputs.beta.float(), scale=inputs.scale,
        initial_state=initial, output_final_state=True, cu_seqlens=rows.starts,
        use_qk_l2norm_in_kernel=inputs.l2norm, output_state=torch.empty_like(initial),
    )  # fmt: skip
    put(out, found, rows)
    keep(state, rows, final)
