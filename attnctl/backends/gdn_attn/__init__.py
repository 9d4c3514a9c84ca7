"""GDN_ATTN: the gated delta rule of Qwen3-Next and, with a gate per channel, of Kimi Linear.

Triton on a GPU; on a processor C++ that is built on first use, or torch without a compiler.
"""

from attnctl.registry import Backend, Rank, Rival
from attnctl.requirements import (
    ANY_FLOAT,
    capability,
    compute_dtypes,
    conv_width,
    device_dtype,
    features,
    key_width,
    operation,
    package,
    platform,
    triton,
)

BACKEND = Backend(
    name="GDN_ATTN",
    summary="Gated delta rule, also with a gate per channel (KDA)",
    ops=("gdn",),
    rules=(
        platform("cuda", "rocm", "xpu", "cpu"),
        *triton(),
        operation("gdn"),
        compute_dtypes(*ANY_FLOAT),
        device_dtype(),
        conv_width(at_most=4),
        key_width(at_most=256),
        *features("kda_gate"),
    ),
    ranks=(
        Rank(platform="cuda", place=10),
        Rank(platform="rocm", place=10),
        Rank(platform="xpu", place=10),
        Rank(platform="cpu", place=10),
    ),
    is_ssm=True,
    kernel="bundled",
    offset_bits=64,
    rivals=(
        Rival(
            name="fla",
            rules=(
                platform("cuda", "rocm"),
                package("fla"),
            ),
        ),
        Rival(
            name="flashinfer",
            rules=(
                platform("cuda"),
                package("flashinfer"),
                capability(at_least=(9, 0), why="FlashInfer's gated delta rule"),
            ),
        ),
    ),
    # chunks of 64 tokens
    block_multiple=64,
)
