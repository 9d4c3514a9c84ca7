"""Lightning attention, linear with a decay per head: the specification, in plain torch.

Per head with state S: [D, Dv] (K before V) and slope s >= 0:
  S <- exp(-s) S + k v^T
  o  = scale q S
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
import torch
from torch import Tensor

from attnctl.ops.mamba2 import attend, recur
from attnctl.ops.states import advance_rows
from attnctl.runtime import StateMetadata

CHUNK = 64


class Linear(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of T tokens and the layer's constants.

    q, k: [T, H, D]. v: [T, H, Dv]. slope: [H] float32.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    slope: Tensor
    scale: float = 1.0

    per_token: ClassVar[tuple[str, ...]] = ("q", "k", "v")


def linear(
    inputs: Linear,
    state: Tensor,
    metadata: StateMetadata,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    chunk: int = 1,
) -> Tensor:
    """out: [T, H, Dv]; states in place. state: [slots, H, D, Dv]. dtype: what it computes in.

    chunk: 1 is the recurrence as written above; more takes that many tokens at once.
    """
    q, k, v = (value.to(dtype) for value in (inputs.q, inputs.k, inputs.v))
    log_decay = -inputs.slope.to(dtype).expand(q.shape[:2])
    if out is None:
        out = v.new_zeros(v.shape)

    def advance(carried: Tensor, tokens: slice) -> tuple[Tensor, Tensor]:
        move = recur if chunk == 1 else attend
        rows = q[tokens] * inputs.scale, k[tokens], v[tokens], log_decay[tokens]
        carried, o = move(carried.mT, *rows)
        return carried.mT, o

    advance_rows(state, metadata, advance, out, dtype, chunk)
    return out
