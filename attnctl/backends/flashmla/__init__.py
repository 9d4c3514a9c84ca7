"""FLASHMLA: FlashMLA's dense decoding kernel, which is Hopper's alone."""

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
    operation,
    package,
    platform,
)

BACKEND = Backend(
    name="FLASHMLA",
    summary="FlashMLA's dense latent attention on Hopper",
    ops=("mla",),
    kernel="adapter",
    beside="TRITON_MLA",
    rules=(
        platform("cuda"),
        package("torch"),
        package("flash_mla", "vllm", platforms=("cuda",)),
        capability(majors=(9,), why="FlashMLA's dense kernel"),
        operation("mla"),
        compute_dtypes(*HALF),
        head_sizes(*LATENT_ROWS),
        kv_cache_dtypes(*PLAIN_KV, "fp8", "fp8_e4m3"),
        block_size(64),
        *features(),
    ),
    ranks=(Rank(platform="cuda", place=20),),
    block_sizes=(64,),
)
