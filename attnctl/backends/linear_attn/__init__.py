"""LINEAR_ATTN: lightning attention, linear with a decay per head (MiniMax, Bailing).

Triton on a GPU; on a processor C++ that is built on first use, or torch without a compiler.
"""

from attnctl.registry import Backend, Rank, Rival
from attnctl.requirements import (
    ANY_FLOAT,
    compute_dtypes,
    device_dtype,
    features,
    operation,
    package,
    platform,
    triton,
)

BACKEND = Backend(
    name="LINEAR_ATTN",
    summary="Lightning attention: linear with a decay per head",
    ops=("linear",),
    rules=(
        platform("cuda", "rocm", "xpu", "cpu"),
        *triton(),
        operation("linear"),
        compute_dtypes(*ANY_FLOAT),
        device_dtype(),
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
            name="fla",
            rules=(
                platform("cuda", "rocm"),
                package("fla"),
            ),
        ),
    ),
)
