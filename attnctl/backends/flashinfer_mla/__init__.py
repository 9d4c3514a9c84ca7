"""FLASHINFER_MLA: FlashInfer's latent attention for data-centre Blackwell."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    HALF,
    LATENT_ROWS,
    PLAIN_KV,
    Subject,
    block_size,
    capability,
    capability_of,
    compute_dtypes,
    features,
    head_sizes,
    kv_cache_dtypes,
    mla_dims,
    operation,
    package,
    platform,
)


def _blackwell(subject: Subject) -> bool:
    cc = capability_of(subject)
    return cc is not None and cc[0] == 10


BACKEND = Backend(
    name="FLASHINFER_MLA",
    summary="FlashInfer's dense latent attention on Blackwell (10.x)",
    ops=("mla",),
    kernel="adapter",
    beside="TRITON_MLA",
    rules=(
        platform("cuda"),
        package("torch"),
        package("flashinfer", platforms=("cuda",)),
        capability(majors=(10,), why="FlashInfer's latent kernels"),
        operation("mla"),
        compute_dtypes(*HALF),
        head_sizes(*LATENT_ROWS),
        mla_dims("nope 64, 128 or 192", lambda mla: mla.qk_nope_head_dim in (64, 128, 192)),
        kv_cache_dtypes(*PLAIN_KV, "fp8", "fp8_e4m3"),
        block_size(32, 64),
        *features(),
    ),
    ranks=(
        Rank(
            platform="cuda",
            place=5,
            why="on 10.x FlashInfer's latent kernels stand first",
            when=_blackwell,
        ),
        Rank(platform="cuda", place=30),
    ),
    block_sizes=(32, 64),
)
