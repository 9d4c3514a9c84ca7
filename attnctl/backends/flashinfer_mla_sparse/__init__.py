"""FLASHINFER_MLA_SPARSE: FlashInfer's sparse latent attention for data-centre Blackwell."""

from attnctl.model.spec import Mla
from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    HALF,
    PLAIN_KV,
    Subject,
    block_size,
    capability,
    capability_of,
    compute_dtypes,
    features,
    head_sizes,
    indexed,
    kv_cache_dtypes,
    mla_dims,
    operation,
    package,
    platform,
)


def _takes(mla: Mla) -> bool:
    if mla.qk_rope_head_dim == 0:
        return mla.qk_nope_head_dim == 256 and mla.kv_lora_rank == 512
    return mla.qk_nope_head_dim in (128, 192)


def _on_blackwell(subject: Subject) -> bool:
    cc = capability_of(subject)
    return cc is not None and cc[0] == 10


def _quantized(subject: Subject) -> bool:
    return _on_blackwell(subject) and subject.layer.quantized_kv


def _few_heads(subject: Subject) -> bool:
    heads = subject.layer.heads
    return _on_blackwell(subject) and heads is not None and heads <= 16


BACKEND = Backend(
    name="FLASHINFER_MLA_SPARSE",
    summary="FlashInfer's sparse latent attention on Blackwell (10.x)",
    ops=("mla_sparse",),
    kernel="adapter",
    beside="TRITON_MLA_SPARSE",
    rules=(
        platform("cuda"),
        package("torch"),
        package("flashinfer", platforms=("cuda",)),
        capability(majors=(10,), why="FlashInfer's sparse latent kernels"),
        operation("mla_sparse"),
        compute_dtypes(*HALF),
        head_sizes(512, 576),
        mla_dims("nope 128 or 192, or without rope lora 512 and nope 256", _takes),
        indexed(),
        kv_cache_dtypes(*PLAIN_KV, "fp8", "fp8_e4m3"),
        block_size(multiple_of=32),
        *features(),
    ),
    ranks=(
        Rank(
            platform="cuda",
            place=10,
            why="a quantised cache on 10.x takes FlashInfer first",
            when=_quantized,
        ),
        Rank(
            platform="cuda",
            place=10,
            why="16 heads per rank or fewer on 10.x take FlashInfer first",
            when=_few_heads,
        ),
        Rank(platform="cuda", place=30),
    ),
    block_multiple=32,
)
