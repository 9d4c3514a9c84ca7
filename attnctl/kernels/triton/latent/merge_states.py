"""Merging attention over two sets of keys, one program a query token and head."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.latent.launch import run
from attnctl.kernels.triton.launch import Launch


@triton.jit
def merge_kernel(
    A,
    LSE_A,
    B,
    LSE_B,
    OUT,
    LSE,
    stride_at,
    stride_ah,
    stride_lat,
    stride_lah,
    stride_bt,
    stride_bh,
    stride_lbt,
    stride_lbh,
    stride_ot,
    stride_oh,
    stride_lt,
    stride_lh,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid: (T, H). The output of a side without keys is not read."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    lse_a = tl.load(LSE_A + token * stride_lat + head * stride_lah).to(tl.float32)
    lse_b = tl.load(LSE_B + token * stride_lbt + head * stride_lbh).to(tl.float32)
    lse_a = tl.where(lse_a == float("inf"), float("-inf"), lse_a)
    lse_b = tl.where(lse_b == float("inf"), float("-inf"), lse_b)
    top = tl.maximum(lse_a, lse_b)
    shift = tl.where(top == float("-inf"), 0.0, top)
    weight_a = tl.exp(lse_a - shift)
    weight_b = tl.exp(lse_b - shift)
    total = weight_a + weight_b
    safe = tl.where(total > 0.0, total, 1.0)
    column = tl.arange(0, BLOCK)
    # no columns of a side without keys
    width_a = tl.where(weight_a > 0.0, WIDTH, 0)
    width_b = tl.where(weight_b > 0.0, WIDTH, 0)
    at_a = A + token * stride_at + head * stride_ah + column
    at_b = B + token * stride_bt + head * stride_bh + column
    a = tl.load(at_a, mask=column < width_a, other=0.0).to(tl.float32)
    b = tl.load(at_b, mask=column < width_b, other=0.0).to(tl.float32)
    value = a * (weight_a / safe) + b * (weight_b / safe)
    at = OUT + token * stride_ot + head * stride_oh + column
    tl.store(at, value.to(OUT.dtype.element_ty), mask=column < WIDTH)
    lse = tl.where(total > 0.0, shift + tl.log(safe), float("-inf"))
    tl.store(LSE + token * stride_lt + head * stride_lh, lse)


def merge_launch(sides: tuple[Tensor, Tensor, Tensor, Tensor], out: Tensor, lse: Tensor) -> Launch:
    """out_a, lse_a, out_b, lse_b into out and lse; the last dimension of each output is dense."""
    tensors = (*sides, out, lse)
    strides = tuple(tensor.stride(dim) for tensor in tensors for dim in (0, 1))
    width = out.shape[2]
    constants: dict[str, Any] = {
        "WIDTH": width,
        "BLOCK": triton.next_power_of_2(width),
        "num_warps": 1 if width <= 256 else 4,
    }
    return Launch(merge_kernel, tuple(out.shape[:2]), (*tensors, *strides), constants)


def merge_states(
    out_a: Tensor,
    lse_a: Tensor,
    out_b: Tensor,
    lse_b: Tensor,
    out: Tensor | None = None,
    lse: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """attnctl.ops.merge_states: out in out_a's dtype, lse float32."""
    if out is None:
        out = torch.empty_like(out_a, memory_format=torch.contiguous_format)
    if lse is None:
        lse = torch.empty(lse_a.shape, dtype=torch.float32, device=lse_a.device)
    sides = (_dense(out_a), lse_a, _dense(out_b), lse_b)
    if out.numel():
        run(merge_launch(sides, out, lse))
    return out, lse


def _dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
