"""FLASH_ATTN_DIFFKV: FlashAttention 3 or 4 for keys and values of unequal width (MiMo-V2)."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    HALF,
    block_size,
    capability,
    compute_dtypes,
    features,
    flash_head_size,
    flash_kernel,
    flash_kv_cache_dtype,
    flash_prefix_lm,
    flash_sinks,
    operation,
    package,
    platform,
    whole_chunks,
)

BACKEND = Backend(
    name="FLASH_ATTN_DIFFKV",
    summary="FlashAttention 3 or 4 with unequal K and V widths",
    ops=("diffkv",),
    rules=(
        platform("cuda"),
        package("torch"),
        # the cache write for unequal widths is ours, in Triton
        package("triton", platforms=("cuda",)),
        capability(at_least=(8, 0), why="FlashAttention"),
        # FA2 wants one width for keys and values
        flash_kernel(versions=(3, 4)),
        operation("diffkv"),
        compute_dtypes(*HALF),
        flash_head_size(),
        flash_kv_cache_dtype(),
        block_size(multiple_of=16),
        whole_chunks(),
        *features(
            "encoder",
            "encoder_only",
            "cross",
            "sliding_window",
            "two_sided_window",
            "chunked",
            "softcap",
            flash_sinks(),
            flash_prefix_lm(),
        ),
    ),
    ranks=(Rank(platform="cuda", place=20),),
    block_multiple=16,
    kernel="adapter",
)
