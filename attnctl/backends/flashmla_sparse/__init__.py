"""FLASHMLA_SPARSE: FlashMLA's sparse kernels on Hopper and data-centre Blackwell."""

from attnctl.registry import Backend, Rank
from attnctl.requirements import (
    Subject,
    block_size,
    capability,
    capability_of,
    compute_dtypes,
    features,
    flashmla_sparse_512,
    flashmla_sparse_block,
    head_sizes,
    kv_cache_dtypes,
    operation,
    package,
    platform,
)


def _many_heads_on_blackwell(subject: Subject) -> bool:
    cc, layer = capability_of(subject), subject.layer
    few = layer.heads is not None and layer.heads <= 16
    return cc is not None and cc[0] == 10 and not layer.quantized_kv and not few


BACKEND = Backend(
    name="FLASHMLA_SPARSE",
    summary="FlashMLA's sparse latent attention on Hopper and Blackwell (10.x)",
    ops=("mla_sparse",),
    kernel="adapter",
    beside="TRITON_MLA_SPARSE",
    rules=(
        platform("cuda"),
        package("torch"),
        package("flash_mla", "vllm", platforms=("cuda",)),
        capability(majors=(9, 10), why="FlashMLA's sparse kernels"),
        operation("mla_sparse"),
        compute_dtypes("bfloat16"),
        head_sizes(512, 576),
        flashmla_sparse_512(),
        kv_cache_dtypes("auto", "bfloat16", "fp8", "fp8_ds_mla"),
        block_size(multiple_of=64),
        flashmla_sparse_block(),
        *features(),
    ),
    ranks=(
        Rank(
            platform="cuda",
            place=20,
            why="more than 16 heads per rank and a plain cache on 10.x take FlashMLA first",
            when=_many_heads_on_blackwell,
        ),
        Rank(platform="cuda", place=20),
    ),
    block_multiple=64,
)
