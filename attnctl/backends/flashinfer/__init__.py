"""FLASHINFER: FlashInfer's paged attention; decoders at four head sizes."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    HALF,
    Subject,
    block_size,
    capability,
    capability_of,
    compute_dtypes,
    features,
    flashinfer_kv_cache_dtype,
    flashinfer_sinks,
    head_sizes,
    operation,
    package,
    platform,
    whole_chunks,
)


def _causal_on_blackwell(subject: Subject) -> bool:
    cc = capability_of(subject)
    return cc is not None and cc[0] == 10 and subject.layer.group.causal


BACKEND = Backend(
    name="FLASHINFER",
    summary="FlashInfer: first for causal attention on Blackwell (10.x)",
    ops=("paged",),
    rules=(
        platform("cuda"),
        package("torch"),
        package("flashinfer", platforms=("cuda",)),
        capability(at_least=(8, 0), at_most=(12, 1), why="FlashInfer"),
        operation("paged"),
        compute_dtypes(*HALF),
        head_sizes(64, 128, 256, 512),
        flashinfer_kv_cache_dtype(),
        block_size(16, 32, 64),
        whole_chunks(),
        *features("sliding_window", "chunked", "softcap", flashinfer_sinks()),
    ),
    ranks=(
        Rank(
            platform="cuda",
            place=10,
            why="on 10.x causal attention takes FlashInfer first",
            when=_causal_on_blackwell,
        ),
        Rank(platform="cuda", place=30),
    ),
    block_sizes=(16, 32, 64),
    kernel="adapter",
)
