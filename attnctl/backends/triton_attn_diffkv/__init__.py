"""TRITON_ATTN_DIFFKV: the bundled kernels for keys and values of unequal width (MiMo-V2)."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    ANY_FLOAT,
    PLAIN_KV,
    block_size,
    compute_dtypes,
    device_dtype,
    features,
    fp8_hardware,
    head_sizes,
    kv_cache_dtypes,
    operation,
    platform,
    shared_memory,
    triton,
)

BACKEND = Backend(
    name="TRITON_ATTN_DIFFKV",
    summary="Paged attention with unequal K and V widths in Triton; decoders only",
    ops=("diffkv",),
    rules=(
        platform("cuda", "rocm", "xpu"),
        *triton(),
        operation("diffkv"),
        compute_dtypes(*ANY_FLOAT),
        device_dtype(),
        head_sizes(at_least=32),
        kv_cache_dtypes(*PLAIN_KV, "float32", "fp8", "fp8_e4m3", "fp8_e5m2"),
        fp8_hardware(),
        shared_memory(),
        block_size(multiple_of=16),
        *features("sliding_window", "chunked", "sinks", "softcap", "alibi", "prefix_lm"),
    ),
    kernel="bundled",
    offset_bits=64,
    ranks=(
        Rank(platform="cuda", place=40),
        Rank(platform="rocm", place=40),
        Rank(platform="xpu", place=40),
    ),
    block_multiple=16,
)
