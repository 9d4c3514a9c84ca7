"""FLASH_ATTN: FlashAttention 2, 3 or 4, whichever serves the layer and is installed."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    HALF,
    block_size,
    capability,
    compute_dtypes,
    features,
    flash_alibi,
    flash_block_multiple,
    flash_block_size,
    flash_head_size,
    flash_kernel,
    flash_kv_cache_dtype,
    flash_prefix_lm,
    flash_sinks,
    on,
    operation,
    package,
    platform,
    whole_chunks,
)

BLOCK, INTELS_BLOCK = 16, 64
"""Tokens of which a block of the cache is made; with the flash-attn package's FA2 more."""

BACKEND = Backend(
    name="FLASH_ATTN",
    summary="FlashAttention 2, 3 or 4 on NVIDIA, vLLM's kernels on Intel",
    ops=("paged",),
    rules=(
        platform("cuda", "xpu"),
        package("torch"),
        package("vllm_xpu_kernels", platforms=("xpu",)),
        capability(at_least=(8, 0), why="FlashAttention"),
        flash_kernel(),
        operation("paged"),
        compute_dtypes(*HALF),
        flash_head_size(),
        flash_kv_cache_dtype(),
        *on("cuda", flash_block_size(multiple=BLOCK)),
        *on("xpu", block_size(multiple_of=INTELS_BLOCK)),
        whole_chunks(BLOCK, {"xpu": INTELS_BLOCK}, flash_block_multiple),
        # chunked layers are served as virtual batches, one per chunk
        *features(
            "encoder",
            "encoder_only",
            "cross",
            "sliding_window",
            "two_sided_window",
            "chunked",
            "softcap",
            flash_sinks(),
            flash_alibi(),
            flash_prefix_lm(),
        ),
    ),
    ranks=(
        Rank(platform="cuda", place=20),
        Rank(platform="xpu", place=20),
    ),
    block_multiple=BLOCK,
    block_multiple_on={"xpu": INTELS_BLOCK},
    block_multiple_for=flash_block_multiple,
    kernel="adapter",
)
