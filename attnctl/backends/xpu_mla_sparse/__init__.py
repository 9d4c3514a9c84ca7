"""XPU_MLA_SPARSE: vLLM's Intel kernels for sparse latent attention, or the bundled one."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    HALF,
    PLAIN_KV,
    block_size,
    compute_dtypes,
    features,
    head_sizes,
    kv_cache_dtypes,
    operation,
    package,
    platform,
    shared_memory,
)

BACKEND = Backend(
    name="XPU_MLA_SPARSE",
    summary="Sparse latent attention on Intel: vLLM's kernels, else the bundled one",
    ops=("mla_sparse",),
    kernel="bundled",
    beside="TRITON_MLA_SPARSE",
    rules=(
        platform("xpu"),
        package("torch"),
        package("vllm_xpu_kernels", "triton", platforms=("xpu",)),
        operation("mla_sparse"),
        compute_dtypes(*HALF),
        head_sizes(),
        kv_cache_dtypes(*PLAIN_KV, "fp8", "fp8_e4m3", "fp8_ds_mla"),
        shared_memory(),
        block_size(multiple_of=64),
        *features(),
    ),
    ranks=(Rank(platform="xpu", place=10),),
    block_multiple=64,
)
