"""The least that any kernel must move and compute for a case. No torch."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from attnctl.layer import Layer
from attnctl.ops.case import Case
from attnctl.ops.catalog import layer_for
from attnctl.tune.amounts import ITEM_BYTES, amounts
from attnctl.tune.settings import Work

INDEX_SCALE_BYTES = 4
"""Beside the one-byte numbers of an indexer's key: a scale for each 128 of them."""


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """bytes: read and written once. flops: of the products that the mask lets through."""

    bytes: float = 0.0
    flops: float = 0.0


def needed(case: Case) -> Needed:
    """What a case amounts to, as every sequence's own lengths say."""
    if case.op == "merge_states":
        return _merging(case)
    if case.op == "indexer":
        return _sum(_indexing(case, queries, context) for queries, context in _lengths(case))
    if case.op in ("paged", "diffkv", "mla", "mla_sparse"):
        layer = layer_for(case)
        return _sum(_attention(case, layer, *lengths) for lengths in _lengths(case))
    return _states(case)


def _lengths(case: Case) -> Iterator[tuple[int, int]]:
    """New tokens and context tokens of each sequence that has new ones."""
    for queries, context in zip(_list(case, "queries"), _list(case, "contexts"), strict=True):
        if queries:
            yield queries, context


def _list(case: Case, name: str) -> list[int]:
    return [int(part) for part in str(case.params.get(name, "")).split("+") if part]


def _sum(parts: Iterator[Needed]) -> Needed:
    kept = list(parts)
    return Needed(bytes=sum(x.bytes for x in kept), flops=sum(x.flops for x in kept))


def _attention(case: Case, layer: Layer, queries: int, context: int) -> Needed:
    # the absorbed form of latent attention is the one that tune times as decode
    absorbed = case.params.get("form", "absorbed") == "absorbed"
    found = amounts(
        Work(
            layer=layer,
            phase="decode" if absorbed else "prefill",
            batch=1,
            context=context,
            query=queries,
        )
    )
    return Needed(bytes=found.bytes, flops=found.flops * _two_sided(case, context))


def _two_sided(case: Case, context: int) -> float:
    """The share of a context that a query sees through a window of two sides."""
    if case.params.get("causal", True) or not case.params.get("window"):
        return 1.0
    return min(1.0, (case.count("window") + case.count("window_right")) / context)


def _indexing(case: Case, queries: int, context: int) -> Needed:
    heads, width, topk = (case.count(name) for name in ("index_heads", "head_dim", "topk"))
    size = 1 if case["query_dtype"] == "fp8_e4m3" else ITEM_BYTES[str(case["dtype"])]
    keys = context * (width + INDEX_SCALE_BYTES * width // 128)
    per_query = heads * (width * size + 4) + topk * 4
    pairs = queries * context - queries * (queries - 1) / 2
    return Needed(bytes=keys + queries * per_query, flops=2.0 * heads * width * pairs)


def _merging(case: Case) -> Needed:
    rows = case.count("tokens") * case.count("heads")
    width = case.count("v")
    size = ITEM_BYTES[str(case["dtype"])]
    # two states in, one out, each with a float32 log-sum-exp
    return Needed(bytes=3.0 * rows * (width * size + 4), flops=3.0 * rows * width)


def _states(case: Case) -> Needed:
    """Of a recurrence: its inputs and outputs once, each state read where there is one."""
    elements, columns, flops = _STATE[case.op](case)
    queries = _list(case, "queries")
    tokens = sum(queries)
    read = sum(n > 0 and _carried(case, row) for row, n in enumerate(queries))
    written = sum(_written(case, row, n) for row, n in enumerate(queries))
    moved = (read + written) * elements * ITEM_BYTES[str(case["state_dtype"])]
    moved += tokens * columns * ITEM_BYTES[str(case["dtype"])]
    return Needed(bytes=float(moved), flops=float(tokens * flops))


def _carried(case: Case, row: int) -> bool:
    return case["initial"] == "all" or (case["initial"] == "mixed" and row % 2 == 0)


def _written(case: Case, row: int, queries: int) -> int:
    """States that a row leaves: one, or one after each token where drafts are verified."""
    drafts, verified = case.count("drafts"), case["verified"]
    if drafts and (verified == "all" or (verified == "mixed" and row % 2 == 0)):
        return min(queries, 1 + drafts)
    return min(queries, 1)


_PerToken = tuple[int, int, int]
"""Elements of a state; columns of a token's inputs and outputs; operations of a token."""


def _gdn(case: Case) -> _PerToken:
    keys, values = (case.count(name) for name in ("k_heads", "v_heads"))
    width, width_v = (case.count(name) for name in ("head_k_dim", "head_v_dim"))
    state = values * width * width_v
    gates = values * width if case["kda"] else values
    return state, 2 * keys * width + 2 * values * width_v + gates + values, 6 * state


def _mamba1(case: Case) -> _PerToken:
    channels, size = case.count("channels"), case.count("state_size")
    return channels * size, channels * (3 + bool(case["z"])) + 2 * size, 4 * channels * size


def _mamba2(case: Case) -> _PerToken:
    heads, size = case.count("heads"), case.count("state_size")
    inner = heads * case.count("head_dim")
    columns = inner * (2 + bool(case["z"])) + 2 * case.count("groups") * size + heads
    return inner * size, columns, 4 * inner * size


def _short_conv(case: Case) -> _PerToken:
    channels, width = case.count("channels"), case.count("width")
    return channels * (width - 1), 2 * channels, 2 * channels * width


def _linear(case: Case) -> _PerToken:
    heads, width = case.count("heads"), case.count("head_dim")
    width_v = case.positive("head_v_dim") or width
    state = heads * width * width_v
    return state, heads * (2 * width + 2 * width_v), 4 * state


_STATE = {
    "gdn": _gdn,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "short_conv": _short_conv,
    "linear": _linear,
}
