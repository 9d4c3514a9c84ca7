"""The cases of the lightning indexer, without torch."""

from __future__ import annotations

from collections.abc import Mapping

from attnctl.layer import Layer
from attnctl.model.spec import Indexer
from attnctl.ops.case import Case, Value, make_case
from attnctl.ops.mla_cases import latent_layer
from attnctl.ops.paged_cases import PHASES

OP = "indexer"

DEFAULTS: dict[str, Value] = {
    "queries": "1+1+1",
    "contexts": "17+5+64",
    "index_heads": 64,
    "head_dim": 128,
    "topk": 16,
    "page": 64,
    "dtype": "bfloat16",
    "query_dtype": "auto",
    "ue8m0": False,
    "ties": False,
    "padding": 0,
}
"""topk: context tokens picked of each query's. query_dtype: auto (as dtype) or fp8_e4m3. ue8m0: key
scales are powers of two. ties: few keys, of small whole numbers, so that logits are exact, often
equal, and the picks must be the specification's own. padding: rows past the last sequence, with
slot -1."""


def case(**changes: Value) -> Case:
    return make_case(OP, DEFAULTS, **changes)


def case_of(op: str, params: Mapping[str, Value]) -> Case:
    """The case of a text that was pasted back. InputError on an unknown parameter."""
    return case(**params)


def layer_for(case: Case) -> Layer:
    """The indexer is part of sparse latent attention: its backends are asked."""
    indexer = Indexer(
        heads=case.count("index_heads"), head_dim=case.count("head_dim"), topk=case.count("topk")
    )
    return latent_layer(case, "mla_sparse", indexer=indexer)


def cases(op: str = OP) -> tuple[Case, ...]:
    """Every case once, in a fixed order."""
    every = (
        *(case(ties=ties, **phase) for phase in PHASES.values() for ties in (False, True)),
        *(
            case(queries="1", contexts=str(n), topk=32, ties=n % 2 == 0)
            for n in (1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 700)
        ),
        *(case(queries="1", contexts=str(n), topk=2048, index_heads=8) for n in (2047, 2048, 2049)),
        case(queries="1", contexts="3000", topk=2048, index_heads=4, ties=True),
        case(queries="0+3+0+1", contexts="0+3+9+20"),
        case(queries="", contexts=""),
        case(queries="0+0", contexts="0+9"),
        case(queries="1+1", contexts="20+33", padding=2),
        case(query_dtype="fp8_e4m3", **PHASES["chunked"]),
        case(query_dtype="fp8_e4m3", ue8m0=True, **PHASES["decode"]),
        case(index_heads=32, head_dim=64, **PHASES["chunked"]),
        case(index_heads=5, head_dim=256, ties=True, **PHASES["decode"]),
        *(case(page=page, **PHASES["chunked"]) for page in (16, 128)),
        *(case(dtype=dtype, **PHASES["chunked"]) for dtype in ("float16", "float32")),
    )
    return tuple({one.text: one for one in every}.values())
