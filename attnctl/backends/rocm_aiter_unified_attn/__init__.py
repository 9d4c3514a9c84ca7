"""ROCM_AITER_UNIFIED_ATTN: AITER's unified attention, or the bundled kernel for 64-wide waves.

Asks for cache blocks of 64 tokens and takes multiples of 16 only. Where AITER is installed it
stands before TRITON_ATTN (on RDNA 4 before everything); without AITER behind it.
"""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    CDNA3,
    HALF,
    PLAIN_KV,
    RDNA4,
    Subject,
    arch_of,
    block_size,
    compute_dtypes,
    features,
    fp8_hardware,
    head_sizes,
    installed,
    kv_cache_dtypes,
    operation,
    package,
    platform,
    shared_memory,
)


def _aiter_on_rdna4(subject: Subject) -> bool:
    return arch_of(subject).startswith(RDNA4) and installed(subject, "aiter")


def _aiter_on_cdna3(subject: Subject) -> bool:
    return arch_of(subject).startswith(CDNA3) and installed(subject, "aiter")


BACKEND = Backend(
    name="ROCM_AITER_UNIFIED_ATTN",
    summary="One AMD kernel for prefill and decode: AITER's where installed, else the bundled one",
    ops=("paged",),
    rules=(
        platform("rocm"),
        package("torch"),
        package("aiter", "triton", platforms=("rocm",)),
        operation("paged"),
        compute_dtypes(*HALF),
        head_sizes(at_least=32),
        kv_cache_dtypes(*PLAIN_KV, "fp8", "fp8_e4m3", "fp8_e5m2"),
        fp8_hardware(),
        shared_memory(),
        block_size(multiple_of=16),
        *features(
            "encoder",
            "encoder_only",
            "cross",
            "sliding_window",
            "two_sided_window",
            "chunked",
            "sinks",
            "softcap",
            "alibi",
        ),
    ),
    ranks=(
        Rank(
            platform="rocm",
            place=5,
            why="with AITER on RDNA 4 its unified attention stands first",
            when=_aiter_on_rdna4,
        ),
        Rank(
            platform="rocm",
            place=30,
            why="with AITER on CDNA 3 or later its unified attention goes before Triton's",
            when=_aiter_on_cdna3,
        ),
        Rank(platform="rocm", place=45),
    ),
    block_multiple=16,
    prefers_block=64,
    kernel="bundled",
)
