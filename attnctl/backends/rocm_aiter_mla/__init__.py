"""ROCM_AITER_MLA: AITER's latent attention on CDNA 3 and later."""

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
)

BACKEND = Backend(
    name="ROCM_AITER_MLA",
    summary="AITER's dense latent attention on CDNA 3 and later",
    ops=("mla",),
    kernel="adapter",
    beside="TRITON_MLA",
    rules=(
        platform("rocm"),
        package("torch"),
        package("aiter", platforms=("rocm",)),
        gfx(*CDNA3, why="AITER"),
        operation("mla"),
        compute_dtypes(*HALF),
        head_sizes(),
        kv_cache_dtypes(*PLAIN_KV, "fp8", "fp8_e4m3", "fp8_e5m2"),
        fp8_hardware(),
        block_size(multiple_of=1),
        *features(),
    ),
    ranks=(Rank(platform="rocm", place=10),),
    block_multiple=1,
)
