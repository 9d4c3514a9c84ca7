"""Cases for adapters, tried as smoke does, and the libraries that are there for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch

from attnctl.ops import catalog
from attnctl.ops.paged import Paged
from attnctl.ops.paged_cases import PHASES, case
from attnctl.ops.paged_trial import try_case
from attnctl.runtime import PagedRuntime
from tests.adapters.fakes import loader
from tests.adapters.latent_specified import BUNDLED

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


class OtherNumbers:
    """A runtime whose sinks come in float64 and slopes in bfloat16, every second of twice as many.

    The cases' slopes are powers of two: neither is rounded.
    """

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def forward(self, query: Any, cache: Any, metadata: Any, params: Paged, out: Any) -> Any:
        spread = {
            name: torch.stack((numbers.to(dtype), torch.full_like(numbers, 9.0).to(dtype)), 1)[:, 0]
            for name, dtype in (("sinks", torch.float64), ("alibi_slopes", torch.bfloat16))
            if (numbers := getattr(params, name)) is not None
        }
        assert not any(numbers.is_contiguous() for numbers in spread.values())
        others = msgspec.structs.replace(params, **spread)
        return self._runtime.forward(query, cache, metadata, others, out)


def wrong_batches(
    op: str, batches: Mapping[str, dict[str, Any]], runtime: Any, *names: str, **changes: Any
) -> dict[str, str]:
    """The batches of latent attention that were not right, with why. names: only these."""
    found = {}
    for name in names or batches:
        one = catalog.case_of(op, {**batches[name], "heads": 3, **changes})
        comparison = catalog.try_case(runtime, one, "cpu")
        if comparison.verdict != "pass":
            found[name] = f"{comparison.verdict}: {comparison.detail}"
    return found


def libraries(*modules: dict[str, Any]) -> Any:
    """import_module where these are installed, the bundled kernels among them."""
    merged: dict[str, Any] = dict(BUNDLED)
    for one in modules:
        merged |= one
    return loader(**merged)
