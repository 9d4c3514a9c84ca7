"""Latent attention and its indexer as torch would compute them on a processor."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from attnctl.ops.indexer import Indexing, key_planes
from attnctl.ops.mla import Latent
from attnctl.ops.packed_rows import plain_rows

RANK, ROPE, NOPE, V, PAGE = 512, 64, 128, 128, 64
PARAMS = Latent(scale=(NOPE + ROPE) ** -0.5, kv_lora_rank=RANK)
INDEXING = Indexing(topk=2048, scale=128**-0.5 * 64**-0.5)
FP8 = torch.float8_e4m3fn


def gathered(cache: Tensor, table: Tensor, context: int) -> Tensor:
    """[B, S, C] float32."""
    if cache.dtype is FP8:
        rows = cache.view(torch.uint8)[table].view(FP8)
    else:
        rows = cache[table]
    return rows.flatten(1, 2)[:, :context].float()


def future(queries: int, context: int) -> Tensor:
    """[Q, S] bool: what is not visible."""
    return torch.ones(queries, context, dtype=torch.bool).triu(context - queries + 1)


def dense_torch(query: Tensor, cache: Tensor, table: Tensor, hidden: Tensor | None) -> Tensor:
    tokens, heads, width = query.shape
    sequences, context = table.shape[0], table.shape[1] * PAGE
    rows = gathered(cache, table, context)
    flat = query.float().view(sequences, -1, width)
    logits = flat @ rows.transpose(1, 2) * PARAMS.scale
    if hidden is not None:
        shaped = logits.view(sequences, -1, heads, context)
        logits = shaped.masked_fill(hidden[None, :, None], -torch.inf).view_as(logits)
    out = torch.softmax(logits, -1) @ rows[..., :RANK]
    return out.view(tokens, heads, RANK).to(query.dtype)


def keys_values(cache: Tensor, table: Tensor, w_uk: Tensor, w_uv: Tensor) -> tuple[Tensor, Tensor]:
    """[B, H, S, D] and [B, H, S, Dv] float32."""
    heads = w_uk.shape[0]
    rows = gathered(cache, table, table.shape[1] * PAGE)
    latent, rope = rows[..., :RANK], rows[..., RANK:]
    keys = torch.einsum("bsl,hdl->bhsd", latent, w_uk.float())
    shared = rope[:, None].expand(-1, heads, -1, -1)
    return torch.cat([keys, shared], -1), torch.einsum("bsl,hvl->bhsv", latent, w_uv.float())


def uncompressed_torch(
    query: Tensor, cache: Tensor, table: Tensor, hidden: Tensor, w_uk: Tensor, w_uv: Tensor
) -> Tensor:
    keys, values = keys_values(cache, table, w_uk, w_uv)
    rows = query.float().unflatten(0, (table.shape[0], -1)).transpose(1, 2)
    logits = rows @ keys.transpose(2, 3) * PARAMS.scale
    out = torch.softmax(logits.masked_fill(hidden, -torch.inf), -1) @ values
    return out.transpose(1, 2).flatten(0, 1).to(query.dtype)


def uncompressed_sdpa(
    query: Tensor, cache: Tensor, table: Tensor, hidden: Tensor, w_uk: Tensor, w_uv: Tensor
) -> Tensor:
    keys, values = keys_values(cache, table, w_uk, w_uv)
    rows = query.float().unflatten(0, (table.shape[0], -1)).transpose(1, 2)
    values = pad(values, (0, keys.shape[3] - values.shape[3]))
    whole = rows.shape[2] == keys.shape[2]
    out = scaled_dot_product_attention(
        rows,
        keys,
        values,
        attn_mask=None if whole else ~hidden,
        is_causal=whole,
        scale=PARAMS.scale,
    )
    return out[..., : w_uv.shape[1]].transpose(1, 2).flatten(0, 1).to(query.dtype)


def sparse_torch(query: Tensor, cache: Tensor, slots: Tensor) -> Tensor:
    valid = (slots >= 0) & (slots < cache.shape[0] * PAGE)
    at = torch.where(valid, slots, 0).long()
    flat = cache.flatten(0, 1)
    rows = flat.view(torch.uint8)[at].view(FP8) if cache.dtype is FP8 else flat[at]
    rows = torch.where(valid[..., None], plain_rows(rows, RANK, torch.float32), 0.0)
    logits = query.float() @ rows.transpose(1, 2) * PARAMS.scale
    weights = torch.softmax(logits.masked_fill(~valid[:, None], -torch.inf), -1)
    return (weights @ rows[..., :RANK]).to(query.dtype)


def index_torch(
    query: Tensor, weights: Tensor, cache: Tensor, table: Tensor, hidden: Tensor | None
) -> Tensor:
    keys, scales = key_planes(cache)
    sequences, context = table.shape[0], table.shape[1] * PAGE
    rows = keys.view(torch.uint8)[table].view(FP8).float() * scales[table]
    rows = rows.flatten(1, 2)
    heads = query.float().unflatten(0, (sequences, -1)).flatten(1, 2)
    products = (heads @ rows.transpose(1, 2)).relu()
    products = products.view(query.shape[0], query.shape[1], context)
    logits = (weights[:, None] @ products)[:, 0] * INDEXING.scale
    if hidden is not None:
        logits = logits.masked_fill(hidden.repeat(sequences, 1), -torch.inf)
    if context <= INDEXING.topk:
        found = torch.arange(context).repeat(logits.shape[0], 1)
        visible = logits > -torch.inf
    else:
        values, found = logits.topk(INDEXING.topk, sorted=False)
        visible = values > -torch.inf
    picks = torch.where(visible, found, context).sort(1).values
    picks = torch.where(picks < context, picks, -1).int()
    return pad(picks, (0, INDEXING.topk - picks.shape[1]), value=-1)
