"""FLEX_ATTENTION: torch's compiled flex_attention, with masks as functions of positions.

vLLM has it on NVIDIA and Intel; torch compiles it for AMD and for CPUs too, so here it stands last
on every platform rather than leave a layer without a backend.
"""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    ANY_FLOAT,
    PLAIN_KV,
    block_size,
    compute_dtypes,
    device_dtype,
    features,
    head_sizes,
    kv_cache_dtypes,
    operation,
    platform,
    shared_memory,
    triton,
)

BACKEND = Backend(
    name="FLEX_ATTENTION",
    summary="torch's flex_attention: any mask, any head size",
    ops=("paged", "diffkv"),
    rules=(
        platform("cuda", "rocm", "xpu", "cpu"),
        *triton(),
        operation("paged", "diffkv"),
        compute_dtypes(*ANY_FLOAT),
        device_dtype(),
        head_sizes(),
        kv_cache_dtypes(*PLAIN_KV, "float32"),
        shared_memory(),
        block_size(multiple_of=16),
        *features(
            "encoder_only",
            "sliding_window",
            "two_sided_window",
            "chunked",
            "softcap",
            "alibi",
            "prefix_lm",
        ),
    ),
    ranks=(
        Rank(platform="cuda", place=50),
        Rank(platform="rocm", place=50),
        Rank(platform="xpu", place=50),
        Rank(platform="cpu", place=50),
    ),
    block_multiple=16,
    offset_bits=32,
    kernel="bundled",
)
