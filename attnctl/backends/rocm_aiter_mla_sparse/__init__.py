"""ROCM_AITER_MLA_SPARSE: AITER's sparse latent attention, on CDNA 3 and later."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
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
    name="ROCM_AITER_MLA_SPARSE",
    summary="Sparse latent attention by AITER; TRITON_MLA_SPARSE serves where AITER does not",
    ops=("mla_sparse",),
    kernel="adapter",
    beside="TRITON_MLA_SPARSE",
    rules=(
        platform("rocm"),
        package("torch"),
        package("aiter", platforms=("rocm",)),
        gfx("gfx94", "gfx95", why="AITER"),
        operation("mla_sparse"),
        compute_dtypes(*HALF),
        head_sizes(),
        kv_cache_dtypes(*PLAIN_KV, "fp8", "fp8_e4m3"),
        fp8_hardware(),
        block_size(multiple_of=1),
        *features(),
    ),
    ranks=(Rank(platform="rocm", place=10),),
    block_multiple=1,
)
