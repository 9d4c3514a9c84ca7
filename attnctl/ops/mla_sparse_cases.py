"""The cases of sparse latent attention, without torch."""

from __future__ import annotations

from collections.abc import Mapping

from attnctl.layer import Layer
from attnctl.model.spec import Indexer
from attnctl.ops.case import Case, Value, make_case
from attnctl.ops.mla_cases import latent_layer
from attnctl.ops.paged_cases import PHASES

OP = "mla_sparse"

DEFAULTS: dict[str, Value] = {
    "queries": "1+1+1",
    "contexts": "17+5+64",
    "topk": 32,
    "picks": "first",
    "heads": 16,
    "lora": 512,
    "rope": 64,
    "nope": 128,
    "v": 128,
    "page": 64,
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "fused": False,
    "padding": 0,
}
"""topk: places of a query's list. picks: what the list holds. first: random tokens, then -1. holes:
-1 anywhere. nothing: only -1. stray: some beyond the cache or far below 0, which count as -1.
indexer: what the backend's own indexer picks; up to topk context tokens that is dense attention."""

PICKS = ("first", "holes", "nothing", "stray", "indexer")


def case(**changes: Value) -> Case:
    return make_case(OP, DEFAULTS, **changes)


def case_of(op: str, params: Mapping[str, Value]) -> Case:
    """The case of a text that was pasted back. InputError on an unknown parameter."""
    return case(**params)


def layer_for(case: Case) -> Layer:
    """The demands that this case makes of a backend: what its rules are asked about."""
    indexer = Indexer(heads=64, head_dim=128, topk=case.count("topk"))
    return latent_layer(case, "mla_sparse", indexer=indexer)


def cases(op: str = OP) -> tuple[Case, ...]:
    """Every case once, in a fixed order."""
    every = (*_picks(), *_lengths(), *_shapes(), *_storage())
    return tuple({one.text: one for one in every}.values())


def _picks() -> list[Case]:
    found = [
        case(picks=picks, **PHASES[phase]) for picks in PICKS for phase in ("decode", "chunked")
    ]
    edges = [
        case(queries="0+3+0+1", contexts="0+3+9+20", picks="holes"),
        case(queries="", contexts=""),
        case(queries="0+0", contexts="0+9"),
        case(queries="1+1", contexts="20+33", padding=2),
        case(queries="1+1", contexts="20+33", padding=2, picks="indexer"),
    ]
    return [*found, *edges]


def _lengths() -> list[Case]:
    """Around a tile with a short list, and around DeepSeek's own 2048."""
    short = [
        case(queries="1", contexts=str(n), topk=64, picks=picks)
        for n in (1, 15, 16, 17, 32, 33, 63, 64)
        for picks in ("first", "indexer")
    ]
    lists = [case(topk=topk, picks="holes") for topk in (1, 15, 16, 17, 128, 129)]
    whole = [
        case(queries="1", contexts=str(n), topk=2048, picks=picks)
        for n in (5, 2047, 2048, 3000)
        for picks in ("first", "holes")
    ]
    dense = [case(queries="1", contexts=str(n), topk=2048, picks="indexer") for n in (2047, 2048)]
    return [*short, *lists, *whole, *dense]


def _shapes() -> list[Case]:
    wide = [case(heads=heads, picks="holes", **PHASES["chunked"]) for heads in (128, 64, 20, 8, 1)]
    return [
        *wide,
        case(heads=16, lora=512, rope=0, picks="holes"),
        case(heads=8, lora=256, rope=64, picks="holes"),
        case(heads=5, lora=192, rope=32, picks="holes"),
        case(fused=True, picks="holes"),
        *(case(page=page, picks="holes") for page in (16, 128)),
    ]


def _storage() -> list[Case]:
    packed = [
        case(kv_cache_dtype="fp8_ds_mla", picks=picks, heads=heads, **PHASES["chunked"])
        for picks in ("holes", "stray", "indexer")
        for heads in (16, 128)
    ]
    return [
        *packed,
        case(kv_cache_dtype="fp8_ds_mla", queries="1", contexts="2048", topk=2048),
        case(kv_cache_dtype="fp8_ds_mla", lora=256, picks="nothing", padding=1),
        case(kv_cache_dtype="fp8_ds_mla", lora=256, dtype="float16", picks="holes"),
        case(kv_cache_dtype="fp8_e4m3", picks="holes", **PHASES["chunked"]),
        *(case(dtype=dtype, picks="holes") for dtype in ("float16", "float32")),
    ]
