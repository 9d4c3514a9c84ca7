"""Attention over a paged KV cache: the specification, in plain torch.

A batch packs B sequences of different lengths: sequence b has query tokens
query_start_loc[b] : query_start_loc[b + 1] and seq_lens[b] context tokens, its queries being the
last ones of the context (decode: one query; chunked prefill: fewer queries than context).

Query token at position i sees context token at position j when all of these hold:
  causal: j <= i;
  window: j > i - window (`window` counts the token itself: transformers' convention, so the
    flash-attention style `window_left` is window - 1; 0 hides all, and goes with causal);
  window_right: j <= i + window_right (two-sided windows, with causal off);
  chunk: i // chunk == j // chunk (Llama 4);
or, whatever the above say, when both lie in one bidirectional range of the sequence
(prefix_ranges; the order of vLLM and FlexAttention: masks first, then the ranges are added).
A sink adds exp(sink[h]) to the softmax's denominator and nothing to the sum. Softcap c replaces a
scaled logit x by c * tanh(x / c), before masks and ALiBi. ALiBi adds slope[h] * (j - i).
A row that sees nothing gives 0; a query token of no sequence is not written.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.ops.paged_params import settle


class Paged(msgspec.Struct, frozen=True, kw_only=True):
    """What the mask and the logits need beside the tensors; None: the layer has none of it.

    sinks: [H] float32. alibi_slopes: [H] float32. prefix_ranges: [B, M, 2] int32, first and
    past-the-end positions of bidirectional ranges, empty ranges ignored. k_scale, v_scale: what a
    stored FP8 value is multiplied with; of an int8 cache [N, P, Hk] float32, one a token and head.
    A softcap of 0 is none. InputError where a value makes no attention.
    """

    scale: float
    causal: bool = True
    window: int | None = None
    window_right: int | None = None
    chunk: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    alibi_slopes: Tensor | None = None
    prefix_ranges: Tensor | None = None
    k_scale: float | Tensor = 1.0
    v_scale: float | Tensor = 1.0

    def __post_init__(self) -> None:
        settle(self)


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    params: Paged,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """out: [T, H, Dv], in the query's dtype where `out` is given, else in `dtype`.

    query: [T, H, D]. key_cache: [N, P, Hk, D], value_cache: [N, P, Hk, Dv], any strides, storage
    dtype. block_table: [B, pages] int, page p of sequence b holds positions p * P to p * P + P - 1.
    query_start_loc: [B + 1] int. seq_lens: [B] int. dtype: what it computes in.
    """
    tokens, heads, _ = query.shape
    if out is None:
        out = query.new_zeros(tokens, heads, value_cache.shape[3], dtype=dtype)
    starts = query_start_loc.tolist()
    for b, length in enumerate(seq_lens.tolist()):
        first, last = starts[b], starts[b + 1]
        if first == last:
            continue
        keys, values = (
            _dequantised(gather(cache, block_table[b], length).to(dtype), scale, block_table[b])
            for cache, scale in ((key_cache, params.k_scale), (value_cache, params.v_scale))
        )
        ranges = None if params.prefix_ranges is None else params.prefix_ranges[b]
        seen = visible(last - first, length, params, ranges).to(query.device)
        rows = attend(query[first:last].to(dtype), keys, values, seen, params)
        out[first:last] = rows.to(out.dtype)
    return out


def gather(cache: Tensor, pages: Tensor, length: int) -> Tensor:
    """The first `length` context tokens of one sequence: [S, Hk, D] from [N, P, Hk, D]."""
    size = cache.shape[1]
    count = -(-length // size)
    return cache[pages[:count].long()].flatten(0, 1)[:length]


def _dequantised(stored: Tensor, scale: float | Tensor, pages: Tensor) -> Tensor:
    """What a cache's [S, Hk, D] stands for, in its dtype."""
    if isinstance(scale, Tensor):
        scale = gather(scale, pages, stored.shape[0])[..., None]
    return (stored * scale).to(stored.dtype)


def visible(queries: int, length: int, params: Paged, ranges: Tensor | None = None) -> Tensor:
    """Which context token each query token sees: [queries, S] bool."""
    i = torch.arange(length - queries, length, device="cpu")[:, None]
    j = torch.arange(length, device="cpu")[None, :]
    seen = j <= i if params.causal else (j >= 0).expand(queries, length)
    if params.window is not None:
        seen = seen & (j > i - params.window)
    if params.window_right is not None:
        seen = seen & (j <= i + params.window_right)
    if params.chunk is not None:
        seen = seen & (i // params.chunk == j // params.chunk)
    if ranges is not None:
        for begin, end in ranges.tolist():
            seen = seen | ((i >= begin) & (i < end) & (j >= begin) & (j < end))
    return seen


def attend(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, params: Paged) -> Tensor:
    """Attention of one sequence. [Q, H, D], [S, Hk, D], [S, Hk, Dv], [Q, S] bool -> [Q, H, Dv]."""
    group = query.shape[1] // keys.shape[1]
    keys = keys.repeat_interleave(group, dim=1)
    # a masked value must not reach the product: 0 x NaN is NaN
    values = values.repeat_interleave(group, dim=1)
    values = torch.where(seen.any(0)[:, None, None], values, torch.zeros_like(values))
    logits = torch.einsum("qhd,shd->hqs", query, keys) * params.scale
    if params.softcap is not None:
        logits = params.softcap * torch.tanh(logits / params.softcap)
    if params.alibi_slopes is not None:
        logits = logits + _alibi(params.alibi_slopes.to(logits), *seen.shape)
    logits = logits.masked_fill(~seen, -torch.inf)
    return torch.einsum("hqs,shv->qhv", _softmax(logits, params.sinks), values)


def _alibi(slopes: Tensor, queries: int, length: int) -> Tensor:
    i = torch.arange(length - queries, length, device=slopes.device)[:, None]
    j = torch.arange(length, device=slopes.device)[None, :]
    return slopes[:, None, None] * (j - i)


def _softmax(logits: Tensor, sinks: Tensor | None) -> Tensor:
    """Softmax over the last dimension with the sink in its denominator; a row of -inf gives 0."""
    top = logits.amax(-1, keepdim=True)
    if sinks is not None:
        sink = sinks.to(logits)[:, None, None]
        top = torch.maximum(top, sink)
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    weights = torch.exp(logits - top)
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(sink - top)
    return torch.where(total > 0, weights / total, torch.zeros_like(weights))
