"""Backends around the specification itself, each but one with a planted fault."""

from __future__ import annotations

from attnctl.registry import Backend, Rank
from attnctl.requirements import PLAIN_KV, features, kv_cache_dtypes, operation

FEATURES = (
    "encoder",
    "encoder_only",
    "cross",
    "sliding_window",
    "two_sided_window",
    "chunked",
    "sinks",
    "softcap",
    "alibi",
    "prefix_lm",
)


def declare(name: str) -> Backend:
    """A backend of paged attention on a CPU with every feature, in unpacked caches."""
    return Backend(
        name=name,
        summary="planted for a test",
        ops=("paged",),
        rules=(
            operation("paged"),
            kv_cache_dtypes(*PLAIN_KV, "float32"),
            *features(*FEATURES),
        ),
        ranks=(Rank(platform="cpu", place=900),),
        kernel="bundled",
    )
