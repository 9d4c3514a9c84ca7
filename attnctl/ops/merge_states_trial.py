"""Tries one backend on merging attention states."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.latent_runtime import MlaRuntime
from attnctl.ops.case import Case
from attnctl.ops.compare import Comparison, fault, guarded, overrun
from attnctl.ops.lse_check import compare_states
from attnctl.ops.merge_states import merge_attn_states


def try_case(runtime: MlaRuntime, case: Case, device: torch.device | str = "cpu") -> Comparison:
    """Merges once and compares output and log-sum-exp with the specification."""
    states = build(case, device)
    out, buffer = guarded(tuple(states[0].shape), states[0].dtype, device)
    lse, lse_buffer = guarded(tuple(states[1].shape), torch.float32, device)
    runtime.merge_states(*states, out=out, lse=lse)
    stray = overrun(buffer) or overrun(lse_buffer)
    if stray:
        return fault("overrun", stray)
    held = [state.cpu() for state in states]
    exact = merge_attn_states(*held, dtype=torch.float64)
    return compare_states(out, lse, exact, merge_attn_states(*held, dtype=out.dtype))


def build(case: Case, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """out_a, lse_a, out_b, lse_b."""
    generator = torch.Generator().manual_seed(case.seed)
    tokens, heads, width = (case.count(name) for name in ("tokens", "heads", "v"))
    dtype = getattr(torch, str(case["dtype"]))
    outs = [torch.randn(tokens, heads, width, generator=generator).to(dtype) for _ in range(2)]
    lses = [torch.randn(tokens, heads, generator=generator) for _ in range(2)]
    lses[0] += float(str(case["offset"]))
    for side, (out, lse) in enumerate(zip(outs, lses, strict=True)):
        empty = _empty(str(case["empty"]), side, tokens, heads)
        out[empty] = torch.nan
        lse[empty] = float(str(case["absent"]))
    if case["heads_first"]:
        lses = [lse.t().contiguous().t() for lse in lses]
    return outs[0].to(device), lses[0].to(device), outs[1].to(device), lses[1].to(device)


def _empty(which: str, side: int, tokens: int, heads: int) -> Tensor:
    """Rows [T, H] of this side (0 or 1) that saw no keys."""
    index = torch.arange(tokens * heads).reshape(tokens, heads)
    if which == "mixed":
        # a, b, both, neither in turn
        return (index % 4 == side) | (index % 4 == 2)
    return torch.full((tokens, heads), which == "both" or which == "ab"[side])
