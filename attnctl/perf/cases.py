"""Cases of the size that serving has: the small ones of smoke are all launch and little kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attnctl.ops.case import Case, Value
from attnctl.ops.catalog import case_of

Params = dict[str, Value]

_LENGTHS = ("queries", "contexts", "initial", "drafts", "verified", "accepted", "padding")

DECODE: Params = {"queries": "+".join(["1"] * 8), "contexts": "+".join(["2048"] * 8)}
PREFILL: Params = {"queries": "1024", "contexts": "1024"}
STEP: Params = {"queries": "+".join(["1"] * 32), "initial": "all"}
SCAN: Params = {"queries": "512"}

SHAPES: tuple[tuple[str, Params], ...] = (
    # Llama 3.1 8B, MiMo-V2's full layers, DeepSeek V3 on 8 ranks, its indexer
    ("paged", {"heads": 32, "kv_heads": 8, "head_size": 128, "dtype": "bfloat16"}),
    (
        "diffkv",
        {"heads": 32, "kv_heads": 4, "head_size": 192, "head_size_v": 128, "dtype": "bfloat16"},
    ),
    ("mla", {"heads": 16}),
    ("mla", {"heads": 16, "form": "uncompressed"}),
    ("mla_sparse", {"heads": 16, "topk": 512}),
    ("indexer", {"topk": 512}),
    # Qwen3-Next, Mamba 2.8B, Nemotron-H 8B, LFM2 1.2B, MiniMax-Text-01 on 8 ranks
    ("gdn", {"k_heads": 16, "v_heads": 32, "head_k_dim": 128, "head_v_dim": 128}),
    ("mamba1", {"channels": 5120, "state_size": 16}),
    ("mamba2", {"heads": 128, "head_dim": 64, "groups": 8, "state_size": 128}),
    ("short_conv", {"channels": 2048, "width": 3}),
    ("linear", {"heads": 8, "head_dim": 128}),
    ("merge_states", {"tokens": 1024, "heads": 16}),
)
"""Widths of known models."""


def serving_cases() -> tuple[Case, ...]:
    """Decode and prefill of each operation, with the widths of known models."""
    return _unique(one for op, widths in SHAPES for one in _sized(op, widths))


def serving_of(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Decode and prefill with the widths and masks that these cases have."""
    found = []
    for one in cases:
        widths = {name: value for name, value in one.params.items() if name not in _LENGTHS}
        found += list(_sized(one.op, widths))
    return _unique(found)


def _sized(op: str, widths: Params) -> Iterator[Case]:
    if op == "merge_states":
        yield case_of(op, widths)
        return
    for lengths in _sizes(op, widths):
        yield case_of(op, {**widths, **lengths})


def _sizes(op: str, widths: Params) -> tuple[Params, ...]:
    if op in ("paged", "diffkv"):
        return (DECODE, PREFILL) if widths.get("causal", True) else (PREFILL,)
    if op == "mla":
        return (PREFILL,) if widths.get("form") == "uncompressed" else (DECODE,)
    if op in ("mla_sparse", "indexer"):
        return (DECODE,)
    return (STEP, SCAN)


def _unique(cases: Iterable[Case]) -> tuple[Case, ...]:
    return tuple({one.text: one for one in cases}.values())
