"""MAMBA1_ATTN: the selective scan of Mamba 1, Jamba and Falcon Mamba.

Triton on a GPU; on a processor C++ that is built on first use, or torch without a compiler.
"""

from attnctl.registry import Backend, Rank, Rival
from attnctl.requirements import (
    ANY_FLOAT,
    compute_dtypes,
    conv_width,
    device_dtype,
    features,
    operation,
    package,
    platform,
    triton,
)

BACKEND = Backend(
    name="MAMBA1_ATTN",
    summary="Selective scan (Mamba 1)",
    ops=("mamba1",),
    rules=(
        platform("cuda", "rocm", "xpu", "cpu"),
        *triton(),
        operation("mamba1"),
        compute_dtypes(*ANY_FLOAT),
        device_dtype(),
        conv_width(at_most=4),
        *features(),
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
            name="mamba_ssm",
            rules=(
                platform("cuda", "rocm"),
                package("mamba_ssm"),
            ),
        ),
    ),
)
