"""SAMPLE_ATTN: paged attention with unequal widths, windows and soft-capped logits, in torch."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    ANY_FLOAT,
    PLAIN_KV,
    block_size,
    compute_dtypes,
    features,
    head_sizes,
    kv_cache_dtypes,
    operation,
    package,
    platform,
)

BACKEND = Backend(
    name="SAMPLE_ATTN",
    summary="Paged attention one sequence at a time, in plain torch",
    ops=("paged", "diffkv"),
    rules=(
        platform("cpu"),
        package("torch"),
        operation("paged", "diffkv"),
        compute_dtypes(*ANY_FLOAT),
        head_sizes(multiple_of=8, at_least=8, at_most=512),
        kv_cache_dtypes(*PLAIN_KV, "float32"),
        block_size(multiple_of=16),
        *features("sliding_window", "softcap"),
    ),
    ranks=(Rank(platform="cpu", place=500, why="it is slower than what is built in"),),
    block_multiple=16,
    kernel="bundled",
    offset_bits=64,
)
