"""TRITON_MLA_SPARSE: the bundled kernel for sparse latent attention on every GPU.

What serves devices for which no library has sparse kernels: 8.x, 12.x and RDNA among them.
"""

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
    name="TRITON_MLA_SPARSE",
    summary="Sparse latent attention in Triton: any widths, NVIDIA, AMD and Intel",
    ops=("mla_sparse",),
    kernel="bundled",
    offset_bits=64,
    rules=(
        platform("cuda", "rocm", "xpu"),
        *triton(),
        operation("mla_sparse"),
        compute_dtypes(*ANY_FLOAT),
        device_dtype(),
        head_sizes(),
        kv_cache_dtypes(*PLAIN_KV, "float32", "fp8", "fp8_e4m3", "fp8_ds_mla"),
        fp8_hardware(),
        shared_memory(),
        block_size(multiple_of=16),
        *features(),
    ),
    ranks=(
        Rank(platform="cuda", place=90),
        Rank(platform="rocm", place=90),
        Rank(platform="xpu", place=90),
    ),
    block_multiple=16,
)
