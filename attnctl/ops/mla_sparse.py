"""Latent attention over given tokens only (DeepSeek V3.2): the specification, in plain torch.

It is the absorbed form of attnctl.ops.mla in which each query token names the cached rows that it
sees, by slot: page * P + offset. A slot below 0 or beyond the cache is no row: it is never read and
counts as not named. A slot named twice counts twice. A row that names none gives 0, lse -inf.
Nothing here is causal: whoever picks the tokens sees to that (attnctl.ops.indexer does).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.mla import Latent, blank, softmax_lse
from attnctl.ops.packed_rows import plain_rows


def sparse_latent_attention(
    query: Tensor,
    cache: Tensor,
    slots: Tensor,
    params: Latent,
    *,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """out [T, H, L] and lse [T, H], in `dtype`.

    query: [T, H, L + R], W_uk absorbed. cache: [N, P, L + R], or [N, P, bytes] uint8 with rows as
    attnctl.ops.packed_rows packs them. slots: [T, K] int.
    """
    tokens, heads, _ = query.shape
    rank = params.kv_lora_rank
    out, lse = blank(tokens, heads, rank, dtype, query.device)
    for t in range(tokens):
        named = slots[t][valid_slots(slots[t], cache)].long()
        size = cache.shape[1]
        rows = plain_rows(cache[named // size, named % size], rank, dtype) * params.kv_scale
        logits = torch.einsum("hd,sd->hs", query[t].to(dtype), rows) * params.scale
        weights, lse[t] = softmax_lse(logits)
        out[t] = weights @ rows[:, :rank]
    return out, lse


def valid_slots(slots: Tensor, cache: Tensor) -> Tensor:
    """Which slots are rows of the cache [N, P, C]: a bool of slots' shape."""
    return (slots >= 0) & (slots < cache.shape[0] * cache.shape[1])


def check_slots(slots: Tensor, cache: Tensor) -> None:
    """The debug check: InputError where a slot is neither a row of the cache nor negative.

    It waits for the device, so that runtimes make it only when asked to.
    """
    total = cache.shape[0] * cache.shape[1]
    stray = slots >= total
    if bool(stray.any()):
        token, place = stray.nonzero()[0].tolist()
        raise InputError(
            f"slot {int(slots[token, place])} of query token {token}, place {place}, is beyond the "
            f"cache's {total} rows; {int(stray.sum())} slots are. Use -1 for no token"
        )


def to_slots(
    positions: Tensor, block_table: Tensor, query_start_loc: Tensor, seq_lens: Tensor, page: int
) -> Tensor:
    """Slots [T, K] int32 of context positions [T, K] int; -1 where the sequence has no such token.

    block_table: [B, pages] int, query_start_loc: [B + 1] int, seq_lens: [B] int. A query token of
    no sequence gets -1 everywhere. Waits for nothing on a device.
    """
    tokens, sequences = positions.shape[0], block_table.shape[0]
    if not sequences or not tokens:
        return torch.full_like(positions, -1, dtype=torch.int32)
    rows = torch.arange(tokens, device=positions.device)
    owner = torch.searchsorted(query_start_loc.to(rows.dtype), rows, right=True) - 1
    real = ((owner >= 0) & (owner < sequences))[:, None]
    owner = owner.clamp(0, sequences - 1)
    inside = real & (positions >= 0) & (positions < seq_lens[owner].long()[:, None])
    inside = inside & (positions < block_table.shape[1] * page)
    position = torch.where(inside, positions, 0).long()
    pages = block_table[owner].long().gather(1, position // page)
    slots = pages * page + position % page
    return torch.where(inside, slots, -1).to(torch.int32)
