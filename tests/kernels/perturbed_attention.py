"""Calls of paged and latent attention to be perturbed, batches built or handed over as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnctl.ops import indexer
from attnctl.ops.indexer import Indexing, write_index_keys
from attnctl.ops.merge_states import merge_attn_states
from attnctl.ops.mla import Latent, latent_attention, uncompressed_attention
from attnctl.ops.mla_sparse import sparse_latent_attention
from attnctl.ops.paged import Paged, paged_attention
from attnctl.runtime import Metadata
from tests.kernels.perturbing import Call, Results

BATCH = ("query_start_loc", "seq_lens", "block_table", "slot_mapping")
BOUNDS = ("max_query_len", "max_seq_len")
PAGE, BLOCKS, TOKENS, HEADS, KV_HEADS = 32, 4, 3, 4, 2
WIDTH, WIDTH_V, RANK, ROPE, NOPE, INDEX = 16, 24, 32, 16, 16, 64

Form = Callable[..., Call]


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def batch() -> dict[str, Any]:
    """2 and 1 query tokens over contexts of 5 and 40."""
    return {
        "query_start_loc": torch.tensor([0, 2, 3], dtype=torch.int32),
        "seq_lens": torch.tensor([5, 40], dtype=torch.int32),
        "block_table": torch.tensor([[0, 0], [1, 2]], dtype=torch.int32),
        "slot_mapping": torch.tensor([3, 4, 71]),
        "max_query_len": 2,
        "max_seq_len": 40,
    }


def called(
    runtime: Any, method: str, given: Callable[[], dict[str, Any]], exact: Any, hands: bool
) -> Call:
    """A method of a runtime that takes a batch. given: its other arguments, with those that are
    written into by the names `cache`, `index_cache`. hands: the batch is not build_metadata's."""

    def arguments() -> dict[str, Any]:
        return given() | ({"metadata": Metadata(**batch())} if hands else batch())

    def run(asked: dict[str, Any]) -> Results:
        if not hands:
            own = {name: asked.pop(name) for name in (*BATCH, *BOUNDS)}
            asked["metadata"] = runtime.build_metadata(**own)
        return results(getattr(runtime, method)(**asked), asked)

    def specified(asked: dict[str, Any]) -> Results:
        if not hands:
            own = {name: asked.pop(name) for name in (*BATCH, *BOUNDS)}
            asked["metadata"] = Metadata(**own)
        for what in BOUNDS:
            if not isinstance(getattr(asked["metadata"], what), int):
                raise TypeError(f"{what} is no integer")
        return tuple(exact(**asked))

    def results(found: Any, asked: dict[str, Any]) -> Results:
        if found is None:
            return (asked["cache" if "cache" in asked else "index_cache"],)
        found = list(found) if isinstance(found, tuple) else [found]
        if isinstance(asked.get("lse"), Tensor) and len(found) == 1:
            found.append(asked["lse"])
        with torch.no_grad():
            return tuple(live(asked["metadata"], *found))

    return Call(arguments, run, specified)


def places(metadata: Metadata) -> tuple[Tensor, Tensor, Tensor]:
    return metadata.block_table, metadata.query_start_loc, metadata.seq_lens


def live(metadata: Metadata, *found: Tensor) -> list[Tensor]:
    """The rows that belong to a sequence."""
    first, last = metadata.query_start_loc[[0, -1]].tolist()
    if last > TOKENS:
        raise ValueError(f"there are no {last} rows")
    return [x[first:last] for x in found]


def paged_forward(runtime: Any, hands: bool, width_v: int = WIDTH) -> Call:
    def given() -> dict[str, Any]:
        return {
            "query": drawn(TOKENS, HEADS, WIDTH, seed=1),
            "cache": drawn(BLOCKS, PAGE, KV_HEADS, WIDTH + width_v, seed=2),
            "params": Paged(scale=0.3),
            "out": torch.zeros(TOKENS, HEADS, width_v),
        }

    def exact(query: Any, cache: Any, metadata: Any, params: Any, out: Any) -> list[Tensor]:
        halves = cache[..., :WIDTH].double(), cache[..., WIDTH:].double()
        return live(metadata, paged_attention(query, *halves, *places(metadata), params))

    return called(runtime, "forward", given, exact, hands)


def paged_write(runtime: Any, hands: bool, width_v: int = WIDTH) -> Call:
    def given() -> dict[str, Any]:
        return {
            "key": drawn(TOKENS, KV_HEADS, WIDTH, seed=3),
            "value": drawn(TOKENS, KV_HEADS, width_v, seed=4),
            "cache": drawn(BLOCKS, PAGE, KV_HEADS, WIDTH + width_v, seed=2),
            "params": Paged(scale=0.3),
        }

    def exact(key: Any, value: Any, cache: Any, metadata: Any, params: Any) -> list[Tensor]:
        rows = torch.cat([key / params.k_scale, value / params.v_scale], -1)
        return [written(rows, cache, metadata.slot_mapping)]

    return called(runtime, "write_cache", given, exact, hands)


def written(rows: Tensor, cache: Tensor, slots: Tensor) -> Tensor:
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            cache[slot // cache.shape[1], slot % cache.shape[1]] = rows[row].to(cache.dtype)
    return cache


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


PAGED: tuple[Form, ...] = (paged_forward, paged_write)
DENSE: tuple[Form, ...] = (latent_forward, latent_prefill, latent_write, merged)
SPARSE: tuple[Form, ...] = (sparse_forward, latent_write, index_write, index_logits, index_select)
