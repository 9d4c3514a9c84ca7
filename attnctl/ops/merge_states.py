"""Merging attention over two disjoint sets of keys into attention over both: the specification.

Attention over keys A gave out_a with log-sum-exp lse_a, over keys B out_b with lse_b. Over both:
  lse = log(exp(lse_a) + exp(lse_b)),  out = out_a * exp(lse_a - lse) + out_b * exp(lse_b - lse).
A side that saw no keys has lse -inf; some libraries write +inf there, which means the same. Its
output is ignored whatever it holds, NaN included. Where neither saw a key, out is 0, lse -inf.
"""

from __future__ import annotations

import torch
from torch import Tensor


def merge_attn_states(
    out_a: Tensor,
    lse_a: Tensor,
    out_b: Tensor,
    lse_b: Tensor,
    *,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """out [T, H, Dv] and lse [T, H], in `dtype`.

    out_a, out_b: [T, H, Dv]. lse_a, lse_b: [T, H], natural logarithms. Any strides.
    """
    lse = torch.stack([lse_a, lse_b]).to(dtype)
    parts = torch.stack([out_a, out_b]).to(dtype)
    lse = torch.where(lse == torch.inf, -torch.inf, lse)
    top = lse.amax(0)
    top = torch.where(top == -torch.inf, 0.0, top)
    weights = torch.exp(lse - top)
    parts = torch.where((weights > 0)[..., None], parts, 0.0)
    total = weights.sum(0)
    share = torch.where(total > 0, weights / total, 0.0)
    return (parts * share[..., None]).sum(0), torch.log(total) + top
