"""The cases of the state-space operations, without torch: what they demand and how they differ.

Each row states only what is special; shapes name their models.
"""

from __future__ import annotations

from collections.abc import Mapping

from attnctl.layer import Layer, Options, layer_of
from attnctl.model.spec import LayerGroup, ModelSpec, State
from attnctl.ops.case import Case, Value, make_case

COMMON: dict[str, Value] = {
    "queries": "1+5+33",
    "initial": "mixed",
    "drafts": 0,
    "verified": "all",
    "accepted": "1",
    "padding": 0,
    "fused": False,
    "apart": False,
    "dtype": "bfloat16",
    "state_dtype": "float32",
}
"""queries: tokens per sequence, joined by +. initial: which rows carry a state: all, mixed (every
other one) or fresh (none does). drafts: K; verified: which rows keep the state of every token: all,
mixed or last (none does). accepted: tokens of each row's last step that stayed, repeated as needed.
padding: rows of slot -1, three tokens each. fused: per-token tensors are strided views. apart:
slots lie apart. No value is called none, which reads back as no value."""

DEFAULTS: dict[str, dict[str, Value]] = {
    "gdn": {
        "k_heads": 2,
        "v_heads": 4,
        "head_k_dim": 64,
        "head_v_dim": 64,
        "l2norm": True,
        "gate": False,
        "kda": False,
    },
    "mamba1": {"channels": 128, "state_size": 16, "z": True, "d": True, "softplus": True},
    "mamba2": {
        "heads": 4,
        "head_dim": 64,
        "groups": 1,
        "state_size": 64,
        "z": False,
        "d": "head",
        "softplus": True,
        "limits": False,
    },
    "short_conv": {
        "channels": 96,
        "width": 4,
        "bias": True,
        "silu": True,
        "columns": 0,
        "layout": "SD",
        "weights": "float32",
    },
    "linear": {"heads": 4, "head_dim": 64, "head_v_dim": 0, "scale": 1.0},
}
"""gate: decay from A_log and dt_bias inside; kda: a gate per channel. mamba2's d: off, head or
channel; limits: dt kept in [0.01, 0.5]. columns: of the conv state, 0 for as many as needed;
layout: SD (columns first in memory) or DS; weights: the dtype of the taps and the bias.
head_v_dim 0: as head_dim."""


def case(op: str, /, **changes: Value) -> Case:
    return make_case(op, {**COMMON, **DEFAULTS[op]}, **changes)


def case_of(op: str, params: Mapping[str, Value]) -> Case:
    return case(op, **params)


def numbers(case: Case, name: str) -> list[int]:
    return [int(part) for part in str(case[name]).split("+") if part]


def layer_for(case: Case) -> Layer:
    """The demands that this case makes of a backend: what its rules are asked about."""
    kind = "kda" if case.params.get("kda") else case.op
    group = LayerGroup(kind=kind, layers=(0,), state=state_for(case))  # type: ignore[arg-type]
    spec = ModelSpec(model_type="case", groups=(group,), dtype=str(case["dtype"]))
    return layer_of(spec, group, Options())


def state_for(case: Case) -> State:
    """The widths of the case's layer, as a config.json would give them."""
    count = case.count
    if case.op == "gdn":
        kda = bool(case["kda"])
        return State(
            type="kda" if kda else "gdn",
            conv_kernel=4,
            num_k_heads=count("k_heads"),
            num_v_heads=count("v_heads"),
            head_k_dim=count("head_k_dim"),
            head_v_dim=count("head_v_dim"),
            num_heads=count("v_heads") if kda else None,
            head_dim=count("head_v_dim") if kda else None,
        )
    if case.op == "mamba1":
        inner, size = count("channels"), count("state_size")
        return State(type="mamba1", conv_kernel=4, inner=inner, state_size=size)
    if case.op == "mamba2":
        return State(
            type="mamba2",
            conv_kernel=4,
            num_heads=count("heads"),
            head_dim=count("head_dim"),
            n_groups=count("groups"),
            state_size=count("state_size"),
        )
    if case.op == "short_conv":
        return State(type="short_conv", conv_kernel=count("width"), inner=count("channels"))
    return State(type="linear", num_heads=count("heads"), head_dim=count("head_dim"))


# first chunks and later ones, decode, verification, a step after it; every feature meets all four
PHASES: dict[str, dict[str, Value]] = {
    "prefill": {"queries": "33+1+17"},
    "decode": {"queries": "1+1+1", "initial": "all"},
    "verify": {"queries": "4+2+1", "initial": "all", "drafts": 3, "accepted": "1+3+2"},
    "after": {"queries": "1+5", "initial": "all", "drafts": 3, "verified": "last", "accepted": 4},
}

FEATURES: dict[str, tuple[dict[str, Value], ...]] = {
    "gdn": (
        {},
        {"l2norm": False},
        {"gate": True},
        {"kda": True, "k_heads": 4},
        {"kda": True, "k_heads": 4, "gate": True},
        {"head_k_dim": 128, "head_v_dim": 128},  # Qwen3-Next
    ),
    "mamba1": (
        {},
        {"z": False, "d": False},
        {"softplus": False},
        {"channels": 160, "state_size": 16},
    ),
    "mamba2": (
        {},
        {"z": True},
        {"d": "channel"},
        {"d": "off", "softplus": False},
        {"limits": True},
        {"groups": 2, "state_size": 128},  # Nemotron-H, Zamba2
    ),
    "short_conv": (
        {},
        {"bias": False, "silu": False},
        {"width": 3},  # LFM2
        {"width": 2},
        {"columns": 9},
        {"layout": "DS"},
        {"weights": "bfloat16"},
    ),
    "linear": ({}, {"scale": 0.125}, {"head_dim": 128, "heads": 2}),
}

# small where many tokens must be walked, odd where a kernel rounds its tiles up
LONG: dict[str, dict[str, Value]] = {
    "gdn": {"k_heads": 1, "v_heads": 2, "head_k_dim": 32, "head_v_dim": 32},
    "mamba1": {"channels": 32},
    "mamba2": {"heads": 2, "head_dim": 32, "state_size": 32},
    "short_conv": {},
    "linear": {"heads": 2, "head_dim": 32},
}
SHAPES: dict[str, tuple[dict[str, Value], ...]] = {
    "gdn": (
        {"k_heads": 3, "v_heads": 3, "head_k_dim": 48, "head_v_dim": 80},
        {"k_heads": 1, "v_heads": 2, "head_k_dim": 256, "head_v_dim": 256},
        {"k_heads": 1, "v_heads": 8, "head_k_dim": 96, "head_v_dim": 192},
    ),
    "mamba1": ({"channels": 100, "state_size": 12}, {"channels": 520, "state_size": 8}),
    "mamba2": (
        {"heads": 6, "head_dim": 80, "groups": 3, "state_size": 48},
        {"heads": 2, "head_dim": 64, "state_size": 256},  # Falcon-H1
        {"heads": 5, "head_dim": 24, "state_size": 16},
    ),
    "short_conv": ({"channels": 1000}, {"channels": 7}),
    "linear": (
        {"heads": 3, "head_dim": 96},
        {"heads": 2, "head_dim": 48, "head_v_dim": 80},
        {"heads": 1, "head_dim": 256},
    ),
}


def cases(op: str) -> tuple[Case, ...]:
    """Every case of one operation once, in a fixed order."""
    features = [case(op, **phase, **extra) for phase in PHASES.values() for extra in FEATURES[op]]
    shapes = [
        case(op, **PHASES[phase], **shape)
        for shape in SHAPES[op]
        for phase in ("prefill", "decode")
    ]
    every = (*features, *shapes, *_edges(op), *_storage(op))
    return tuple({one.text: one for one in every}.values())


def _edges(op: str) -> list[Case]:
    """Lengths around a chunk and around nothing, empty rows, padding, mixed verification."""
    long = [
        case(op, queries=str(length), initial=initial, **LONG[op])
        for length in (1, 2, 63, 64, 65, 127, 500, 1000)
        for initial in ("all", "fresh")
        if length < 500 or initial == "all"
    ]
    return [
        *long,
        case(op, queries="0+3+0+1"),
        case(op, queries=""),
        case(op, queries="0+0"),
        case(op, queries="1+1+1", initial="fresh"),
        case(op, padding=2),
        case(op, padding=2, **PHASES["decode"]),
        case(op, padding=1, **PHASES["verify"]),
        case(op, **{**PHASES["verify"], "queries": "4+9+1+3", "verified": "mixed"}),
    ]


def _storage(op: str) -> list[Case]:
    """Dtypes of inputs and states, strided inputs, slots that lie apart in a page."""
    dtypes = [
        case(op, dtype=dtype, state_dtype=state, **PHASES[phase])
        for dtype, state in (
            ("float32", "float32"),
            ("float16", "float32"),
            ("float16", "float16"),
            ("bfloat16", "bfloat16"),
        )
        for phase in ("prefill", "decode", "verify")
    ]
    layouts = [
        case(op, fused=fused, apart=apart, **PHASES[phase])
        for fused, apart in ((True, False), (False, True), (True, True))
        for phase in ("prefill", "decode")
    ]
    return [*dtypes, *layouts]
