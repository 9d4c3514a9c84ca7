"""Calls of paged attention to be perturbed, and what its batches share with latent attention's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnctl.ops.paged import Paged, paged_attention
from attnctl.runtime import Metadata
from tests.kernels.perturbing import Call, Results

BATCH = ("query_start_loc", "seq_lens", "block_table", "slot_mapping")
BOUNDS = ("max_query_len", "max_seq_len")
PAGE, BLOCKS, TOKENS, HEADS, KV_HEADS = 32, 4, 3, 4, 2
WIDTH = 16

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


def paged_sizes(runtime: Any, hands: bool) -> Call:
    """The shape of a cache, as a tensor."""
    return sized(runtime.cache_shape, {
        "num_blocks": 4, "block_size": 32, "num_kv_heads": 2, "head_size": 16, "head_size_v": 24,
    }, lambda n, p, h, d, v: (n, p, h, d + (d if v is None else v)))  # fmt: skip


def sized(ask: Callable[..., Any], sizes: dict[str, int], shape: Callable[..., Any]) -> Call:
    def exact(asked: dict[str, Any]) -> Results:
        found = shape(*asked.values())
        if not all(type(x) is int and x > 0 for x in found):
            raise ValueError("a size that is none")
        return (torch.tensor(found),)

    return Call(lambda: dict(sizes), lambda asked: (torch.tensor(ask(**asked)),), exact)


PAGED: tuple[Form, ...] = (paged_forward, paged_write, paged_sizes)
