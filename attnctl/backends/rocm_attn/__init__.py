"""ROCM_ATTN: the paged attention that vLLM compiles into its ROCm build."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    ANY_FLOAT,
    PLAIN_KV,
    block_size,
    compute_dtypes,
    features,
    fp8_hardware,
    head_sizes,
    kv_cache_dtypes,
    one_stack,
    operation,
    package,
    platform,
    whole_chunks,
)

BACKEND = Backend(
    name="ROCM_ATTN",
    summary="The paged attention of vLLM's ROCm build",
    ops=("paged",),
    rules=(
        platform("rocm"),
        package("torch"),
        package("vllm", platforms=("rocm",)),
        operation("paged"),
        one_stack(),
        compute_dtypes(*ANY_FLOAT),
        head_sizes(32, 64, 80, 96, 128, 160, 192, 224, 256),
        kv_cache_dtypes(*PLAIN_KV, "fp8", "fp8_e4m3", "fp8_e5m2"),
        fp8_hardware(),
        block_size(multiple_of=16),
        whole_chunks(),
        *features(
            "encoder", "encoder_only", "sliding_window", "two_sided_window", "chunked", "alibi"
        ),
    ),
    ranks=(Rank(platform="rocm", place=10),),
    block_multiple=16,
    kernel="adapter",
)
