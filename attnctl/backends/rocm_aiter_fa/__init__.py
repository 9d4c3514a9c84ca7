"""ROCM_AITER_FA: AITER's flash attention on CDNA 3 and later; decoders at three head sizes."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    CDNA3,
    HALF,
    PLAIN_KV,
    block_size,
    compute_dtypes,
    features,
    fp8_hardware,
    gfx,
    head_sizes,
    kv_cache_dtypes,
    operation,
    package,
    platform,
    whole_chunks,
)

BACKEND = Backend(
    name="ROCM_AITER_FA",
    summary="AITER's flash attention on CDNA 3 and later",
    ops=("paged",),
    rules=(
        platform("rocm"),
        package("torch"),
        package("aiter", platforms=("rocm",)),
        gfx(*CDNA3, why="AITER"),
        operation("paged"),
        compute_dtypes(*HALF),
        head_sizes(64, 128, 256),
        kv_cache_dtypes(*PLAIN_KV, "fp8", "fp8_e4m3", "fp8_e5m2"),
        fp8_hardware(),
        block_size(16, 32),
        whole_chunks(),
        # its functions take windows and ALiBi slopes, and no soft cap
        *features("sliding_window", "chunked", "sinks", "alibi"),
    ),
    ranks=(Rank(platform="rocm", place=20),),
    block_sizes=(16, 32),
    kernel="adapter",
)
