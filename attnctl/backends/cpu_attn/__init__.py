"""CPU_ATTN: the bundled C++ kernels for paged attention, also with unequal K and V widths.

Blocks of 128 tokens are asked for: on those of 32 a decode takes up to 8 % longer
(benchmarks/results/), and vLLM's default on processors is 128 too. FP8 caches are decoded by
table, so that they need no instruction set; without a compiler the same results come from torch in
float32.
"""

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
    name="CPU_ATTN",
    summary="Paged attention on any processor: every feature",
    ops=("paged", "diffkv"),
    rules=(
        platform("cpu"),
        package("torch"),
        operation("paged", "diffkv"),
        compute_dtypes(*ANY_FLOAT),
        head_sizes(multiple_of=8, at_least=16, at_most=512),
        kv_cache_dtypes(*PLAIN_KV, "float32", "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head"),
        block_size(multiple_of=32),
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
            "prefix_lm",
        ),
    ),
    ranks=(Rank(platform="cpu", place=10),),
    block_multiple=32,
    prefers_block=128,
    kernel="bundled",
    offset_bits=64,
)
