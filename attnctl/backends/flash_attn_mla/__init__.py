"""FLASH_ATTN_MLA: latent attention by FlashAttention 3 on Hopper, and by Intel's kernels."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    HALF,
    LATENT_ROWS,
    PLAIN_KV,
    block_size,
    capability,
    compute_dtypes,
    features,
    head_sizes,
    kv_cache_dtypes,
    on,
    operation,
    package,
    platform,
)

BACKEND = Backend(
    name="FLASH_ATTN_MLA",
    summary="FlashAttention 3's latent attention on Hopper, vLLM's kernels on Intel",
    ops=("mla",),
    kernel="adapter",
    beside="TRITON_MLA",
    rules=(
        platform("cuda", "xpu"),
        package("torch"),
        package("flash_attn_3", "vllm", platforms=("cuda",)),
        package("vllm_xpu_kernels", platforms=("xpu",)),
        capability(majors=(9,), why="FlashAttention 3"),
        operation("mla"),
        compute_dtypes(*HALF),
        *on("cuda", head_sizes(*LATENT_ROWS), block_size(multiple_of=16)),
        *on("xpu", head_sizes(576), block_size(multiple_of=64)),
        kv_cache_dtypes(*PLAIN_KV),
        *features(),
    ),
    ranks=(
        Rank(platform="cuda", place=10),
        Rank(platform="xpu", place=10),
    ),
    block_multiple=16,
    block_multiple_on={"xpu": 64},
)
