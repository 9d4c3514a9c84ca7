"""The cases of merging attention states, without torch."""

from __future__ import annotations

from collections.abc import Mapping

from attnctl.layer import Layer
from attnctl.ops.case import Case, Value, make_case
from attnctl.ops.mla_cases import latent_layer

OP = "merge_states"

DEFAULTS: dict[str, Value] = {
    "tokens": 5,
    "heads": 16,
    "v": 128,
    "empty": "neither",
    "offset": 0.0,
    "absent": "-inf",
    "heads_first": False,
    "dtype": "bfloat16",
}
"""empty: which side saw no keys: neither, a, b, both, or mixed (each of these for some rows); such
a side's output is NaN. offset: what lse_a exceeds lse_b by. absent: how its lse says so, -inf or
inf. heads_first: lse is stored as [H, T]."""


def case(**changes: Value) -> Case:
    return make_case(OP, DEFAULTS, **changes)


def case_of(op: str, params: Mapping[str, Value]) -> Case:
    """The case of a text that was pasted back. InputError on an unknown parameter."""
    return case(**params)


def layer_for(case: Case) -> Layer:
    """Merging is part of latent attention: its backends are asked."""
    return latent_layer(case, "mla")


def cases(op: str = OP) -> tuple[Case, ...]:
    """Every case once, in a fixed order."""
    every = (
        *(case(empty=empty) for empty in ("neither", "a", "b", "both", "mixed")),
        case(empty="mixed", absent="inf"),
        *(case(offset=offset) for offset in (-1e4, -90.0, -20.0, 20.0, 90.0, 1e4)),
        *(case(dtype=dtype, empty="mixed") for dtype in ("float16", "float32")),
        *(case(v=v, heads=heads) for v, heads in ((512, 64), (256, 20), (40, 5), (1, 1))),
        *(case(tokens=tokens, heads=3) for tokens in (0, 1, 65)),
        case(heads_first=True, empty="mixed"),
    )
    return tuple({one.text: one for one in every}.values())
