"""What a layer's work at one point amounts to: its least bytes and operations. No torch."""

from __future__ import annotations

import msgspec

from attnctl.layer import KV_DTYPES, Layer
from attnctl.tune.settings import Work

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """bytes: read and written once; flops: of the products; held_bytes: the cache or the states."""

    bytes: float
    flops: float
    held_bytes: float


def amounts(work: Work) -> Amounts:
    """The least that any kernel must do, and what must be held for it."""
    op = work.layer.op
    if op in ("paged", "diffkv"):
        return _paged(work)
    if op in ("mla", "mla_sparse"):
        return _latent(work)
    return _state(work)


def item_bytes(layer: Layer) -> int:
    return ITEM_BYTES.get(layer.dtype, 2)


def cached_bytes(layer: Layer) -> float:
    """Of one cached element."""
    return KV_DTYPES.get(layer.kv_cache_dtype) or item_bytes(layer)


def seen_pairs(work: Work) -> float:
    """Query-key pairs of one sequence that the mask lets through."""
    group, queries, length = work.layer.group, work.query, work.context
    if not group.causal:
        return float(queries * length)
    bound = group.window or group.chunk
    whole = queries * length - queries * (queries - 1) / 2
    return whole if bound is None else min(whole, float(queries * bound))


def kept_tokens(work: Work) -> int:
    """Context tokens of one sequence that any of its queries sees."""
    bound = work.layer.group.window or work.layer.group.chunk
    if bound is None or not work.layer.group.causal:
        return work.context
    return min(work.context, bound + work.query - 1)


def _paged(work: Work) -> Amounts:
    layer = work.layer
    heads, kv_heads = layer.heads or 1, layer.kv_heads or 1
    widths = (layer.head_size or 0) + (layer.head_size_v or 0)
    row = kv_heads * widths * cached_bytes(layer)
    ends = work.batch * work.query * heads * widths * item_bytes(layer)
    return Amounts(
        bytes=work.batch * kept_tokens(work) * row + ends,
        flops=2.0 * work.batch * heads * widths * seen_pairs(work),
        held_bytes=work.batch * work.context * row + 2 * ends,
    )


def _latent(work: Work) -> Amounts:
    layer, mla = work.layer, work.layer.group.mla
    assert mla is not None
    heads, rank, rope = layer.heads or 1, mla.kv_lora_rank, mla.qk_rope_head_dim
    row = (rank + rope) * cached_bytes(layer)
    tokens = work.batch * work.query
    indexer = layer.group.indexer
    if layer.op == "mla_sparse" and indexer is not None:
        named = min(indexer.topk, work.context)
        read, flops = tokens * named, 2.0 * tokens * heads * (2 * rank + rope) * named
    elif work.phase == "decode":
        read = work.batch * work.context
        flops = 2.0 * work.batch * heads * (2 * rank + rope) * seen_pairs(work)
    else:
        read = work.batch * work.context
        nope, width = mla.qk_nope_head_dim, mla.v_head_dim
        flops = 2.0 * work.batch * heads * (nope + rope + width) * seen_pairs(work)
        flops += 2.0 * read * rank * heads * (nope + width)
    ends = tokens * heads * (2 * rank + rope) * item_bytes(layer)
    held = work.batch * work.context * row + 2 * ends
    return Amounts(bytes=read * row + ends, flops=flops, held_bytes=held)


def _state(work: Work) -> Amounts:
    from attnctl.caches.states import state_shapes

    layer = work.layer
    assert layer.group.state is not None
    elements = 0
    for _, shape in state_shapes(layer.group.state, layer.tp):
        size = 1
        for width in shape:
            size *= width
        elements = max(elements, size)
    tokens = work.batch * work.query
    # what is read of a token is about a row and a column of the state
    per_token = 4 * elements**0.5 * item_bytes(layer)
    held = work.batch * elements * 4.0
    return Amounts(
        bytes=2 * held + tokens * per_token,
        flops=4.0 * tokens * elements,
        held_bytes=held + 4 * tokens * per_token,
    )
