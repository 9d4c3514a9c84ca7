"""The cases of paged attention, without torch: what they demand, so that rules can be asked first.

Each row states only what is special; shapes name their models.
"""

from __future__ import annotations

from collections.abc import Mapping

from attnctl.layer import Layer, Options, layer_of
from attnctl.model.spec import Kind, LayerGroup, ModelSpec
from attnctl.ops.case import Case, Value, make_case

OP = "paged"

DEFAULTS: dict[str, Value] = {
    "queries": "1+5+33",
    "contexts": "17+5+64",
    "heads": 8,
    "kv_heads": 2,
    "head_size": 64,
    "head_size_v": 0,
    "page": 16,
    "causal": True,
    "window": 0,
    "window_right": 0,
    "chunk": 0,
    "softcap": 0.0,
    "sinks": False,
    "alibi": False,
    "ranges": False,
    "dtype": "float16",
    "kv_cache_dtype": "auto",
    "layout": "NHD",
    "fused_qkv": False,
    "padding": 0,
    "poison": False,
    "sharp": False,
}
"""queries, contexts: tokens per sequence, joined by +. head_size_v 0: as head_size. window,
window_right, chunk, softcap 0: none. fused_qkv: Q, K and V are strided views of one projection.
padding: rows past the last sequence, with slot -1. poison: the values of context tokens that no
query token sees are NaN. sharp: logits so large that their exponents overflow unless the largest
is taken off."""


def case(**changes: Value) -> Case:
    return make_case(OP if not changes.get("head_size_v") else "diffkv", DEFAULTS, **changes)


def case_of(op: str, params: Mapping[str, Value]) -> Case:
    """A case from the text of either name; the widths say which of the two it is."""
    return case(**params)


def lengths(case: Case, name: str) -> list[int]:
    return [int(part) for part in str(case[name]).split("+") if part]


def widths(case: Case) -> tuple[int, int]:
    """D and Dv."""
    size = case.count("head_size")
    return size, case.positive("head_size_v") or size


def layer_for(case: Case) -> Layer:
    """The demands that this case makes of a backend: what its rules are asked about."""
    params = case.params
    size, size_v = widths(case)
    group = LayerGroup(
        kind=_kind(case),
        layers=(0,),
        num_heads=case.count("heads"),
        num_kv_heads=case.count("kv_heads"),
        head_size=size,
        head_size_v=size_v if size_v != size else None,
        window=case.positive("window"),
        window_right=case.positive("window_right"),
        chunk=case.positive("chunk"),
        sinks=bool(params["sinks"]),
        softcap=float(str(params["softcap"])) or None,
        alibi=bool(params["alibi"]),
        prefix_lm=bool(params["ranges"]),
    )
    spec = ModelSpec(model_type="case", groups=(group,), dtype=str(params["dtype"]))
    kv_dtype, page = str(params["kv_cache_dtype"]), case.count("page")
    return layer_of(spec, group, Options(kv_cache_dtype=kv_dtype, block_size=page))


def _kind(case: Case) -> Kind:
    if case["chunk"]:
        return "chunked"
    if not case["causal"]:
        return "encoder_self"
    return "sliding" if case["window"] else "full"


# prefill, chunked prefill, decode, several tokens of speculation: every feature meets all four
PHASES = {
    "prefill": {"queries": "33+1+17", "contexts": "33+1+17"},
    "chunked": {"queries": "16+5", "contexts": "49+70"},
    "decode": {"queries": "1+1+1", "contexts": "1+47+130"},
    "speculative": {"queries": "4+3+1", "contexts": "40+3+65"},
}

MIMO: dict[str, int | float | str | bool] = {
    "head_size": 192,
    "head_size_v": 128,
    "heads": 4,
    "kv_heads": 1,
}
"""MiMo-V2's widths."""

FEATURES: tuple[dict[str, int | float | str | bool], ...] = (
    {},
    {"window": 7},
    {"chunk": 24},
    {"softcap": 5.0},
    {"sinks": True},
    {"alibi": True},
    {"ranges": True},
    {"sharp": True},
    {"window": 9, "sinks": True, "head_size": 64, "heads": 16, "kv_heads": 2},  # gpt-oss
    {"window": 5, "softcap": 50.0, "head_size": 256},  # Gemma 2
    MIMO,
    {**MIMO, "window": 9, "sinks": True},
)

# query heads over KV heads, head size: Qwen2.5-7B, falcon-7b, phi-2, Phi-3, zamba2, GPT-2 ...
SHAPES = (
    (28, 4, 128),
    (24, 4, 64),
    (5, 1, 64),
    (71, 1, 64),
    (8, 8, 80),
    (6, 1, 96),
    (4, 4, 112),
    (4, 2, 40),
    (4, 1, 72),
    (2, 2, 224),
    (4, 1, 32),
    (2, 1, 512),
)


def _unequal() -> list[Case]:
    """K and V of other widths, V the wider one too; caches and layouts of such."""
    widths = [
        case(head_size=size, head_size_v=size_v, **PHASES[phase])
        for size, size_v in ((80, 48), (64, 128), (40, 72))
        for phase in ("chunked", "decode")
    ]
    stored = [
        case(**MIMO, **change, **PHASES[phase])
        for change in (
            {"dtype": "bfloat16", "kv_cache_dtype": "fp8_e4m3"},
            {"layout": "HND"},
            {"fused_qkv": True, "padding": 2},
            {"page": 64},
        )
        for phase in ("prefill", "decode")
    ]
    return [*widths, *stored]


def _tall() -> list[Case]:
    """Queries of more than the largest tile's rows, in pages of which a tile takes several."""
    wide = {"heads": 2, "kv_heads": 1, "head_size": 128}
    return [
        case(queries="129", contexts="129", dtype="bfloat16", **wide),
        case(queries="130+128", contexts="200+128", page=64, layout="HND", **wide),
        case(
            queries="129", contexts="200", page=32, **wide | {"head_size": 192, "head_size_v": 128}
        ),
    ]


def cases(op: str = OP) -> tuple[Case, ...]:
    """Every case once, in a fixed order: both names of the operation share one list."""
    every = (*_features(), *_shapes(), *_edges(), *_storage(), *_unequal(), *_tall())
    return tuple({one.text: one for one in every}.values())


# what a mask hides must not reach the product, where 0 x NaN is NaN
POISONED: tuple[dict[str, int | float | str | bool], ...] = (
    {"window": 7},
    {"chunk": 24},
    {"window": 9, "sinks": True},
)


def _features() -> list[Case]:
    return [
        case(**phase, **feature)
        for phase in PHASES.values()
        for feature in (*FEATURES, *({**one, "poison": True} for one in POISONED))
    ]


def _shapes() -> list[Case]:
    return [
        case(heads=heads, kv_heads=kv_heads, head_size=size, **PHASES[phase])
        for heads, kv_heads, size in SHAPES
        for phase in PHASES
    ]


def _edges() -> list[Case]:
    """Lengths around a page and around nothing, empty sequences, padded rows."""
    return [
        case(queries="0+3+0+1", contexts="0+3+0+20"),
        case(queries="0+16+0", contexts="9+49+0"),
        case(queries="0+1+0+1", contexts="9+20+0+33"),
        case(queries="4+0+3", contexts="40+7+3"),
        case(queries="", contexts=""),
        case(queries="0+0", contexts="0+0"),
        case(queries="1", contexts="1"),
        *(case(queries="1", contexts=str(n)) for n in (15, 16, 17, 127, 128, 129, 700)),
        *(case(queries=str(n), contexts=str(n)) for n in (15, 16, 17, 63, 64, 65, 128, 129)),
        *(case(padding=2, **phase) for phase in PHASES.values()),
        case(queries="1+1", contexts="20+33", padding=2),
        *(case(queries="2", contexts=str(n)) for n in (2, 15, 16, 17, 33)),
        case(queries="2+5", contexts="2+9", window=1),
        case(queries="40", contexts="40", causal=False),
        case(queries="40", contexts="40", causal=False, window=6, window_right=5),  # ModernBERT
    ]


def _storage() -> list[Case]:
    """Dtypes of compute and cache, layouts, strides, page sizes."""
    plain = [
        case(dtype=dtype, layout=layout, **PHASES[phase])
        for dtype in ("bfloat16", "float32", "float16")
        for layout in ("NHD", "HND")
        for phase in ("chunked", "decode")
    ]
    narrow = [
        case(dtype="bfloat16", kv_cache_dtype=kv, **phase)
        for kv in ("fp8_e4m3", "fp8_e5m2", "int8_per_token_head")
        for phase in PHASES.values()
    ]
    pages = [case(page=page, **PHASES["chunked"]) for page in (32, 64, 128, 272)]
    fused = [case(fused_qkv=True, **phase) for phase in PHASES.values()]
    hnd = [case(layout="HND", **PHASES[phase]) for phase in ("prefill", "speculative")]
    return [*plain, *narrow, *pages, *fused, *hnd]
