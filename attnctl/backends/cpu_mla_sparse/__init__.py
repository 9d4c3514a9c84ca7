"""CPU_MLA_SPARSE: sparse latent attention on a processor, in C++ or, without a compiler, torch."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    ANY_FLOAT,
    PLAIN_KV,
    block_size,
    compute_dtypes,
    features,
    head_sizes,
    kv_cache_dtypes,
    operation,
    package,
    platform,
)

BACKEND = Backend(
    name="CPU_MLA_SPARSE",
    summary="Sparse latent attention on any processor",
    ops=("mla_sparse",),
    kernel="bundled",
    offset_bits=64,
    rules=(
        platform("cpu"),
        package("torch"),
        operation("mla_sparse"),
        compute_dtypes(*ANY_FLOAT),
        head_sizes(multiple_of=8, at_most=1024),
        kv_cache_dtypes(*PLAIN_KV, "float32", "fp8_ds_mla"),
        block_size(multiple_of=16),
        *features(),
    ),
    ranks=(Rank(platform="cpu", place=10),),
    block_multiple=16,
)
