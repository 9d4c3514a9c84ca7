"""Cases for adapters: the four phases with a feature, tried as smoke does."""

from __future__ import annotations

from typing import Any

from attnctl.ops.paged_cases import PHASES, case
from attnctl.ops.paged_trial import try_case
from attnctl.runtime import PagedRuntime

FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 7},
    "chunk": {"chunk": 32},
    "softcap": {"softcap": 5.0},
    "sinks": {"sinks": True},
    "alibi": {"alibi": True},
    "two_sided": {"causal": False, "window": 6, "window_right": 5},
    "encoder": {"causal": False},
    "fused_qkv": {"fused_qkv": True},
    "padded": {"padding": 2},
    "hnd": {"layout": "HND"},
    "fp8": {"dtype": "bfloat16", "kv_cache_dtype": "fp8_e4m3"},
}


def faults(runtime: PagedRuntime, *features: str, **changes: Any) -> dict[str, str]:
    """The cases that were not right, with why, over prefill, chunked, decode, several tokens."""
    found = {}
    for feature in features:
        for phase, lengths in PHASES.items():
            one = case(**{**lengths, **FEATURES[feature], **changes})
            comparison = try_case(runtime, one)
            if comparison.verdict != "pass":
                found[f"{feature} {phase}"] = f"{comparison.verdict}: {comparison.detail}"
    return found
