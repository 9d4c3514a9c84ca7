"""TRITON_MLA: the bundled kernel for latent attention, on every GPU for which Triton compiles."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    ANY_FLOAT,
    PLAIN_KV,
    Subject,
    block_size,
    capability_of,
    compute_dtypes,
    device_dtype,
    features,
    fp8_hardware,
    head_sizes,
    kv_cache_dtypes,
    operation,
    platform,
    shared_memory,
    triton,
)


def _consumer_blackwell(subject: Subject) -> bool:
    cc = capability_of(subject)
    return cc is not None and cc[0] == 12


BACKEND = Backend(
    name="TRITON_MLA",
    summary="Latent attention in Triton: any widths, NVIDIA, AMD and Intel",
    ops=("mla",),
    kernel="bundled",
    offset_bits=64,
    rules=(
        platform("cuda", "rocm", "xpu"),
        *triton(),
        operation("mla"),
        compute_dtypes(*ANY_FLOAT),
        device_dtype(),
        head_sizes(),
        kv_cache_dtypes(*PLAIN_KV, "float32", "fp8", "fp8_e4m3", "fp8_e5m2"),
        fp8_hardware(),
        shared_memory(),
        block_size(multiple_of=16),
        *features(),
    ),
    ranks=(
        Rank(
            platform="cuda",
            place=5,
            why="12.x has no other latent attention, so the portable kernel stands first",
            when=_consumer_blackwell,
        ),
        Rank(platform="cuda", place=40),
        Rank(platform="rocm", place=40),
        Rank(platform="xpu", place=40),
    ),
    block_multiple=16,
)
