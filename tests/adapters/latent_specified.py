"""What libraries of latent attention answer, computed as the operations specify it.

Where a library leaves a row undefined the stand-in puts 7, which is seen where nothing may be
written, or NaN where something must be, and +inf where a library says +inf.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnctl.backends.cpu_mla import kernel as cpu_mla
from attnctl.backends.cpu_mla_sparse import kernel as cpu_mla_sparse
from attnctl.ops.mla import Latent, latent_attention
from attnctl.ops.mla_sparse import sparse_latent_attention

Arguments = dict[str, Any]
Found = tuple[Tensor, Tensor]
BUNDLED = {
    "attnctl__backends__triton_mla__kernel": cpu_mla,
    "attnctl__backends__triton_mla_sparse__kernel": cpu_mla_sparse,
}
"""On the processor its own backends stand for the bundled Triton ones."""


def dense(
    query: Tensor, cache: Tensor, table: Tensor, starts: Tensor, lengths: Tensor, scale: float
) -> Found:
    """out in the dtype of queries, bfloat16 for FP8 ones, and lse; 7 and +inf where nothing is."""
    assert table.dtype == starts.dtype == lengths.dtype == torch.int32
    rank = {576: 512, 320: 256}[query.shape[2]]
    params = Latent(scale=scale, kv_lora_rank=rank)
    out, lse = latent_attention(
        query.float(), cache, table, starts, lengths, params, dtype=torch.float32
    )
    return undefined(out, lse, query.dtype, 7.0)


def sparse(query: Tensor, cache: Tensor, slots: Tensor, scale: float, rank: int) -> Found:
    assert slots.dtype == torch.int32
    params = Latent(scale=scale, kv_lora_rank=rank)
    out, lse = sparse_latent_attention(query.float(), cache, slots, params, dtype=torch.float32)
    return undefined(out, lse, query.dtype, torch.nan)


def undefined(out: Tensor, lse: Tensor, dtype: torch.dtype, filling: float) -> Found:
    empty = lse == -torch.inf
    lse = torch.where(empty, torch.inf, lse)
    narrow = torch.bfloat16 if dtype.itemsize == 1 else dtype
    return torch.where(empty[..., None], filling, out).to(narrow), lse
