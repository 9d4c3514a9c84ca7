"""Latent attention in vectorised torch, computed in float32: what serves any processor."""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.kernels.latent.rows import read_rows
from attnctl.kernels.plain_torch import CPU, plain_torch
from attnctl.ops.merge_states import merge_attn_states
from attnctl.ops.mla import Latent, softmax_lse
from attnctl.ops.mla_sparse import valid_slots
from attnctl.ops.packed_rows import plain_rows
from attnctl.runtime import Metadata

GATHER_BYTES = 64 << 20
"""Rows that the sparse form gathers at a time: beyond the caches, and small beside the memory."""


@plain_torch(CPU)
def absorbed(
    query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, out: Tensor, lse: Tensor
) -> None:
    """attnctl.ops.mla.latent_attention, one pair of matrix products a sequence."""
    starts, rank, page = metadata.query_start_loc.tolist(), params.kv_lora_rank, cache.shape[1]
    for b, length in enumerate(metadata.seq_lens.tolist()):
        first, last = starts[b], starts[b + 1]
        if first == last:
            continue
        position = torch.arange(length, device=cache.device)
        pages = metadata.block_table[b].long()[position // page]
        rows = read_rows(cache, pages, position % page).float() * params.kv_scale
        logits = query[first:last].float() @ rows.t() * params.scale
        mask_future(logits, last - first, length)
        weights, top = softmax_lse(logits)
        out[first:last] = (weights @ rows[:, :rank]).to(out.dtype)
        lse[first:last] = top


def mask_future(logits: Tensor, queries: int, length: int) -> None:
    """Sets logits [Q, H, S] of what the last Q tokens of S do not see to -inf, in place."""
    if queries > 1:
        future = torch.ones_like(logits[:, 0], dtype=torch.bool).triu(length - queries + 1)
        logits.masked_fill_(future[:, None], -torch.inf)


@plain_torch(CPU)
def uncompressed(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    key_start_loc: Tensor,
    metadata: Metadata,
    scale: float,
    *,
    causal: bool,
    max_keys: int,
) -> tuple[Tensor, Tensor]:
    """Attention over packed keys [S, H, D] and values [S, H, Dv]: float32 out and lse."""
    out = query.new_zeros(*query.shape[:2], values.shape[2], dtype=torch.float32)
    lse = query.new_full(query.shape[:2], -torch.inf, dtype=torch.float32)
    starts, edges = metadata.query_start_loc.tolist(), key_start_loc.tolist()
    for b in range(len(edges) - 1):
        mine, theirs = slice(starts[b], starts[b + 1]), slice(edges[b], edges[b + 1])
        queries, length = mine.stop - mine.start, theirs.stop - theirs.start
        if not queries or not length:
            continue
        # heads first: [H, Q, D] by [H, D, S]
        rows = query[mine].float().transpose(0, 1)
        logits = (rows @ keys[theirs].permute(1, 2, 0) * scale).transpose(0, 1)
        if causal:
            mask_future(logits, queries, length)
        weights, top = softmax_lse(logits)
        out[mine] = (weights.transpose(0, 1) @ values[theirs].transpose(0, 1)).transpose(0, 1)
        lse[mine] = top
    return out, lse


@plain_torch(CPU)
def sparse(
    query: Tensor, cache: Tensor, slots: Tensor, params: Latent, out: Tensor, lse: Tensor
) -> None:
    """attnctl.ops.mla_sparse.sparse_latent_attention, some query tokens at a time."""
    tokens, _, width = query.shape
    listed, page, rank = slots.shape[1], cache.shape[1], params.kv_lora_rank
    block = max(1, GATHER_BYTES // max(1, 4 * width * listed))
    for first in range(0, tokens, block):
        part = slice(first, min(first + block, tokens))
        valid = valid_slots(slots[part], cache)
        at = torch.where(valid, slots[part], 0).long()
        rows = plain_rows(read_rows(cache, at // page, at % page), rank, torch.float32)
        # what an invalid place stands for may be NaN, and 0 x NaN is NaN
        rows = torch.where(valid[..., None], rows * params.kv_scale, 0.0)
        logits = query[part].float() @ rows.transpose(1, 2) * params.scale
        weights, top = softmax_lse(logits.masked_fill(~valid[:, None], -torch.inf))
        out[part] = (weights @ rows[..., :rank]).to(out.dtype)
        lse[part] = top


class TorchLatent:
    """attnctl.kernels.cpu.latent.LatentKernels without a compiler."""

    name = "torch"
    absorbed = staticmethod(absorbed)
    sparse = staticmethod(sparse)
    uncompressed = staticmethod(uncompressed)

    @plain_torch(CPU)
    def merge(
        self, out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, out: Tensor, lse: Tensor
    ) -> None:
        merged, top = merge_attn_states(out_a, lse_a, out_b, lse_b, dtype=torch.float32)
        out.copy_(merged)
        lse.copy_(top)
