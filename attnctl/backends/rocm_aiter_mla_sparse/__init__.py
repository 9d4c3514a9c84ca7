"""ROCM_AITER_MLA_SPARSE: AITER's sparse latent attention, or the bundled kernel without AITER."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    HALF,
    PLAIN_KV,
    block_size,
    compute_dtypes,
    features,
    fp8_hardware,
    head_sizes,
    kv_cache_dtypes,
    operation,
    package,
    platform,
    shared_memory,
)

BACKEND = Backend(
    name="ROCM_AITER_MLA_SPARSE",
    summary="Sparse latent attention on AMD: AITER where it is installed, else the bundled kernel",
    ops=("mla_sparse",),
    rules=(
        platform("rocm"),
        package("torch"),
        package("aiter", "triton", platforms=("rocm",)),
        operation("mla_sparse"),
        compute_dtypes(*HALF),
        head_sizes(),
        kv_cache_dtypes(*PLAIN_KV, "fp8", "fp8_e4m3"),
        fp8_hardware(),
        shared_memory(),
        block_size(multiple_of=1),
        *features(),
    ),
    ranks=(Rank(platform="rocm", place=10),),
    block_multiple=1,
)
