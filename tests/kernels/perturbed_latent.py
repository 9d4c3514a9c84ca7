"""Calls of latent attention, dense and sparse, its indexer, and merging, to be perturbed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnctl.ops import indexer
from attnctl.ops.indexer import Indexing, write_index_keys
from attnctl.ops.merge_states import merge_attn_states
from attnctl.ops.mla import Latent, latent_attention, uncompressed_attention
from attnctl.ops.mla_sparse import sparse_latent_attention
from tests.kernels.perturbed_attention import (
    BLOCKS,
    HEADS,
    PAGE,
    TOKENS,
    WIDTH,
    Form,
    called,
    drawn,
    live,
    places,
    sized,
    written,
)
from tests.kernels.perturbing import Call, Results

RANK, ROPE, NOPE, INDEX = 32, 16, 16, 64


def _latent(**more: Any) -> dict[str, Any]:
    cache, params = drawn(BLOCKS, PAGE, RANK + ROPE, seed=5), Latent(scale=0.2, kv_lora_rank=RANK)
    return {"cache": cache, "params": params} | more


def latent_forward(runtime: Any, hands: bool) -> Call:
    def given() -> dict[str, Any]:
        query = drawn(TOKENS, HEADS, RANK + ROPE, seed=6)
        out, lse = torch.zeros(TOKENS, HEADS, RANK), torch.zeros(TOKENS, HEADS)
        return _latent(query=query, out=out, lse=lse)

    def exact(query: Any, cache: Any, metadata: Any, params: Any, out: Any, lse: Any) -> Any:
        found = latent_attention(query, cache, *places(metadata), params)
        return live(metadata, *found[: 1 if lse is None else 2])

    return called(runtime, "forward", given, exact, hands)


def latent_prefill(runtime: Any, hands: bool) -> Call:
    def given() -> dict[str, Any]:
        w_uk, w_uv = drawn(HEADS, NOPE, RANK, seed=7), drawn(HEADS, WIDTH, RANK, seed=8)
        out, lse = torch.zeros(TOKENS, HEADS, WIDTH), torch.zeros(TOKENS, HEADS)
        query = drawn(TOKENS, HEADS, NOPE + ROPE, seed=9)
        return _latent(query=query, w_uk=w_uk, w_uv=w_uv, out=out, lse=lse, chunk=16)

    def exact(
        query: Any, cache: Any, metadata: Any, params: Any, w_uk: Any, w_uv: Any, lse: Any, **_: Any
    ) -> Any:
        found = uncompressed_attention(query, cache, *places(metadata), w_uk, w_uv, params)
        return live(metadata, *found[: 1 if lse is None else 2])

    return called(runtime, "prefill", given, exact, hands)


def latent_write(runtime: Any, hands: bool) -> Call:
    def given() -> dict[str, Any]:
        return _latent(latent=drawn(TOKENS, RANK, seed=10), rope=drawn(TOKENS, ROPE, seed=11))

    def exact(latent: Any, rope: Any, cache: Any, metadata: Any, params: Any) -> list[Tensor]:
        rows = torch.cat([latent, rope], 1) / params.kv_scale
        return [written(rows, cache, metadata.slot_mapping)]

    return called(runtime, "write_cache", given, exact, hands)


def sparse_forward(runtime: Any, hands: bool) -> Call:
    def given() -> dict[str, Any]:
        slots = torch.tensor([[3, 1, -1], [0, 4, -1], [40, 65, 33]], dtype=torch.int32)
        query = drawn(TOKENS, HEADS, RANK + ROPE, seed=6)
        out, lse = torch.zeros(TOKENS, HEADS, RANK), torch.zeros(TOKENS, HEADS)
        return _latent(query=query, slots=slots, out=out, lse=lse, check=False)

    def exact(
        query: Any, cache: Any, metadata: Any, slots: Any, params: Any, lse: Any, **_: Any
    ) -> Any:
        found = sparse_latent_attention(query, cache, slots, params)
        return live(metadata, *found[: 1 if lse is None else 2])

    return called(runtime, "forward", given, exact, hands)


def _index_cache() -> Tensor:
    cache = torch.zeros(indexer.index_cache_shape(BLOCKS, PAGE, INDEX), dtype=torch.uint8)
    keys = drawn(BLOCKS * PAGE, INDEX, seed=12)
    write_index_keys(keys, cache, torch.arange(BLOCKS * PAGE), Indexing(topk=4, scale=0.5))
    return cache


def index_write(runtime: Any, hands: bool) -> Call:
    def given() -> dict[str, Any]:
        key, params = drawn(TOKENS, INDEX, seed=13), Indexing(topk=4, scale=0.5)
        return {"key": key, "index_cache": _index_cache(), "params": params}

    def exact(key: Any, index_cache: Any, metadata: Any, params: Any) -> list[Tensor]:
        write_index_keys(key.float(), index_cache, metadata.slot_mapping, params)
        return [index_cache]

    return called(runtime, "write_index", given, exact, hands)


def _indexing() -> dict[str, Any]:
    return {
        "query": drawn(TOKENS, HEADS, INDEX, seed=14),
        "weights": drawn(TOKENS, HEADS, seed=15),
        "index_cache": _index_cache(),
        "params": Indexing(topk=4, scale=0.5),
    }


def index_logits(runtime: Any, hands: bool) -> Call:
    def exact(query: Any, weights: Any, index_cache: Any, metadata: Any, params: Any) -> Any:
        found = indexer.index_logits(query, weights, index_cache, *places(metadata), params)
        return live(metadata, found)

    return called(runtime, "index_logits", _indexing, exact, hands)


def index_select(runtime: Any, hands: bool) -> Call:
    def given() -> dict[str, Any]:
        return _indexing() | {"out": torch.full((TOKENS, 4), -1, dtype=torch.int32)}

    def exact(
        query: Any, weights: Any, index_cache: Any, metadata: Any, params: Any, out: Any
    ) -> Any:
        found = indexer.index_logits(query, weights, index_cache, *places(metadata), params)
        return live(metadata, indexer.pick_topk(found, params.topk))

    return called(runtime, "select_tokens", given, exact, hands)


def merged(runtime: Any, hands: bool) -> Call:
    """No batch belongs to it."""

    def arguments() -> dict[str, Any]:
        sides = {f"out_{x}": drawn(TOKENS, HEADS, WIDTH, seed=16 + n) for n, x in enumerate("ab")}
        sums = {f"lse_{x}": drawn(TOKENS, HEADS, seed=18 + n) for n, x in enumerate("ab")}
        out, lse = torch.zeros(TOKENS, HEADS, WIDTH), torch.zeros(TOKENS, HEADS)
        return sides | sums | {"out": out, "lse": lse}

    def run(asked: dict[str, Any]) -> Results:
        found: Results = runtime.merge_states(**asked)
        return found

    def exact(asked: dict[str, Any]) -> Results:
        asked = {name: asked[name] for name in ("out_a", "lse_a", "out_b", "lse_b")}
        return merge_attn_states(**asked)

    return Call(arguments, run, exact)


def latent_sizes(runtime: Any, hands: bool) -> Call:
    return sized(runtime.cache_shape, {
        "num_blocks": 4, "block_size": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    }, lambda n, p, rank, rope: (n, p, rank + rope))  # fmt: skip


def index_sizes(runtime: Any, hands: bool) -> Call:
    return sized(runtime.index_cache_shape, {
        "num_blocks": 4, "block_size": 32, "head_dim": 128,
    }, lambda n, p, d: (n, p, d + 4 * -(-d // 128)))  # fmt: skip


DENSE: tuple[Form, ...] = (latent_forward, latent_prefill, latent_write, merged, latent_sizes)
INDEXER: tuple[Form, ...] = (index_write, index_logits, index_select, index_sizes)
SPARSE: tuple[Form, ...] = (sparse_forward, latent_write, latent_sizes, *INDEXER)
WITHOUT_BATCH = (merged, latent_sizes, index_sizes)
