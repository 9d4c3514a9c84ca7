"""Multi-head latent attention (DeepSeek V2): the specification, in plain torch.

What is cached of a token is one row for all heads: a latent vector c of L columns (kv_lora_rank)
and a rotated key part r of R columns (qk_rope_head_dim). Head h of context token s has
  key   k[h] = [W_uk[h] c, r]     of nope + R columns,
  value v[h] = W_uv[h] c          of Dv columns,
where W_uk and W_uv are the two halves of kv_b_proj. Two forms give the same output:
  uncompressed: k and v are made for every context token, then plain attention (prefill);
  absorbed: W_uk goes into the query, and W_uv behind the sum. What is left is attention with one
  KV head of width L + R whose value is the first L columns of its key (decode).
Masks and lengths are those of attnctl.ops.paged, causal and without a window.
A log-sum-exp (lse) is the natural logarithm of the sum of exp(scaled logits) that a row saw:
-inf where it saw nothing, and then its output is 0.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.ops.merge_states import merge_attn_states
from attnctl.ops.paged_params import settle_latent


class Latent(msgspec.Struct, frozen=True, kw_only=True):
    """What a layer of latent attention needs beside its tensors.

    scale: of the logits; the width of an uncompressed key (nope + R) decides it, not L + R.
    kv_lora_rank: L. kv_scale: what a stored FP8 value is multiplied with.
    """

    scale: float
    kv_lora_rank: int
    kv_scale: float = 1.0

    def __post_init__(self) -> None:
        settle_latent(self)


def latent_attention(
    query: Tensor,
    cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    params: Latent,
    *,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """The absorbed form: out [T, H, L] and lse [T, H], in `dtype`.

    query: [T, H, L + R], W_uk absorbed. cache: [N, P, L + R], any strides, storage dtype.
    block_table: [B, pages] int. query_start_loc: [B + 1] int. seq_lens: [B] int. dtype: what it
    computes in. A token of no sequence gives 0 and -inf.
    """
    tokens, heads, _ = query.shape
    rank = params.kv_lora_rank
    out, lse = blank(tokens, heads, rank, dtype, query.device)
    starts = query_start_loc.tolist()
    for b, length in enumerate(seq_lens.tolist()):
        first, last = starts[b], starts[b + 1]
        if first == last:
            continue
        rows = context_rows(cache, block_table[b], 0, length).to(dtype) * params.kv_scale
        seen = causal(last - first, length, query.device)
        keys, values = rows[:, None], rows[:, None, :rank]
        found = attend(query[first:last].to(dtype), keys, values, seen, params.scale)
        out[first:last], lse[first:last] = found
    return out, lse


def uncompressed_attention(
    query: Tensor,
    cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    params: Latent,
    *,
    chunk: int = 0,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """The uncompressed form: out [T, H, Dv] and lse [T, H], in `dtype`.

    query: [T, H, nope + R]. cache and the lengths: as in latent_attention. w_uk: [H, nope, L],
    w_uv: [H, Dv, L]. chunk: context tokens that are uncompressed at a time, their parts merged by
    log-sum-exp; 0: all at once.
    """
    tokens, heads, _ = query.shape
    out, lse = blank(tokens, heads, w_uv.shape[1], dtype, query.device)
    starts = query_start_loc.tolist()
    for b, length in enumerate(seq_lens.tolist()):
        first, last = starts[b], starts[b + 1]
        if first == last:
            continue
        seen = causal(last - first, length, query.device)
        for begin in range(0, length, chunk or length):
            end = min(begin + (chunk or length), length)
            rows = context_rows(cache, block_table[b], begin, end).to(dtype) * params.kv_scale
            keys, values = uncompress(rows, w_uk.to(dtype), w_uv.to(dtype))
            part = attend(
                query[first:last].to(dtype), keys, values, seen[:, begin:end], params.scale
            )
            merged = merge_attn_states(out[first:last], lse[first:last], *part, dtype=dtype)
            out[first:last], lse[first:last] = merged
    return out, lse


def absorb(query: Tensor, w_uk: Tensor) -> Tensor:
    """The query of the absorbed form, [T, H, L + R], from [T, H, nope + R] and [H, nope, L]."""
    nope = w_uk.shape[1]
    latent = torch.einsum("thd,hdl->thl", query[..., :nope], w_uk)
    return torch.cat([latent, query[..., nope:]], dim=-1)


def values_of(out: Tensor, w_uv: Tensor) -> Tensor:
    """What the absorbed form's output [T, H, L] stands for: [T, H, Dv], by w_uv [H, Dv, L]."""
    return torch.einsum("thl,hvl->thv", out, w_uv)


def uncompress(rows: Tensor, w_uk: Tensor, w_uv: Tensor) -> tuple[Tensor, Tensor]:
    """Keys [S, H, nope + R] and values [S, H, Dv] of cached rows [S, L + R]."""
    heads, _, rank = w_uk.shape
    latent, rope = rows[:, :rank], rows[:, rank:]
    keys = torch.einsum("sl,hdl->shd", latent, w_uk)
    shared = rope[:, None].expand(-1, heads, -1)
    return torch.cat([keys, shared], dim=-1), torch.einsum("sl,hvl->shv", latent, w_uv)


def split_kv_b(weight: Tensor, heads: int, nope: int) -> tuple[Tensor, Tensor]:
    """w_uk [H, nope, L] and w_uv [H, Dv, L], views of kv_b_proj's weight [H * (nope + Dv), L]."""
    per_head = weight.unflatten(0, (heads, -1))
    return per_head[:, :nope], per_head[:, nope:]


def context_rows(cache: Tensor, pages: Tensor, begin: int, end: int) -> Tensor:
    """Rows of context tokens begin .. end - 1 of one sequence: [end - begin, C] of [N, P, C]."""
    size = cache.shape[1]
    position = torch.arange(begin, end, device=cache.device)
    return cache[pages[position // size].long(), position % size]


def causal(queries: int, length: int, device: torch.device) -> Tensor:
    """Which context token each of the last `queries` tokens sees: [queries, S] bool."""
    i = torch.arange(length - queries, length, device=device)[:, None]
    return torch.arange(length, device=device)[None] <= i


def attend(
    query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """out [Q, H, Dv] and lse [Q, H]. [Q, H, D], [S, H or 1, D], [S, H or 1, Dv], [Q, S] bool."""
    # a masked value must not reach the product: 0 x NaN is NaN
    values = torch.where(seen.any(0)[:, None, None], values, torch.zeros_like(values))
    if keys.shape[1] == 1:
        logits = query @ keys[:, 0].t()
    else:
        logits = torch.einsum("qhd,shd->qhs", query, keys)
    weights, lse = softmax_lse((logits * scale).masked_fill(~seen[:, None], -torch.inf))
    if values.shape[1] == 1:
        return weights @ values[:, 0], lse
    return torch.einsum("qhs,shv->qhv", weights, values), lse


def softmax_lse(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the last dimension and its log-sum-exp; a row of -inf gives 0 and -inf."""
    if not logits.shape[-1]:
        return logits, logits.new_full(logits.shape[:-1], -torch.inf)
    top = logits.amax(-1, keepdim=True)
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    weights = torch.exp(logits - top)
    total = weights.sum(-1, keepdim=True)
    lse = torch.log(total) + top
    return torch.where(total > 0, weights / total, torch.zeros_like(weights)), lse[..., 0]


def blank(
    tokens: int, heads: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The output and log-sum-exp of tokens that have seen nothing yet."""
    out = torch.zeros(tokens, heads, width, dtype=dtype, device=device)
    return out, torch.full((tokens, heads), -torch.inf, dtype=dtype, device=device)
