"""Rules of latent attention: widths, the indexer, and the special limits of sparse kernels."""

from __future__ import annotations

from collections.abc import Callable

from attnctl.findings import Finding, met, unmet
from attnctl.model.spec import Mla
from attnctl.requirements.rule import Rule, Subject
from attnctl.requirements.words import both

LATENT_ROWS = (320, 512, 576)
"""Cached rows (kv_lora_rank + rope) that the libraries' dense kernels are built for."""


def mla_dims(wanted: str, accepts: Callable[[Mla], bool]) -> Rule:
    """Latent-attention widths that the kernel was built for."""

    def check(subject: Subject) -> Finding | None:
        mla = subject.layer.group.mla
        if mla is None:
            return None
        found = (
            f"lora {mla.kv_lora_rank}, rope {mla.qk_rope_head_dim}, "
            f"nope {mla.qk_nope_head_dim}, v {mla.v_head_dim}"
        )
        finding = met if accepts(mla) else unmet
        return finding("mla_dims", wanted, found, subject.layer.source("mla"))

    return Rule("mla_dims", "layer", check, wanted=wanted)


def indexed() -> Rule:
    """The model names the number of tokens that its indexer picks (index_topk)."""
    wanted = "index_topk in the config"

    def check(subject: Subject) -> Finding | None:
        layer = subject.layer
        if layer.op != "mla_sparse":
            return None
        indexer = layer.group.indexer
        if indexer is None:
            return unmet("index_topk", wanted, "none", layer.source("indexer"))
        return met("index_topk", wanted, str(indexer.topk), layer.source("indexer"))

    return Rule("index_topk", "layer", check, wanted=wanted)


def flashmla_sparse_512() -> Rule:
    """Rows of 512 (no rope part) are Hopper's, unquantised or in FlashMLA's packed FP8."""
    wanted = "rows of 512 only on 9.x, without rope, cache auto, bfloat16 or fp8_ds_mla"

    def check(subject: Subject) -> Finding | None:
        layer, gpu = subject.layer, subject.gpu
        if layer.head_size != 512 or layer.op != "mla_sparse":
            return None
        cc = gpu.capability if gpu else None
        rope = layer.group.mla.qk_rope_head_dim if layer.group.mla else 0
        good = (
            cc is not None
            and cc[0] == 9
            and rope == 0
            and layer.kv_cache_dtype in ("auto", "bfloat16", "fp8_ds_mla")
        )
        here = f" on {cc[0]}.{cc[1]}" if cc else ""
        found = f"512 with rope {rope}, cache {layer.kv_cache_dtype}{here}"
        source = both(layer.source("head_size"), layer.kv_cache_dtype_source)
        source = both(source, subject.source("capability")) if cc else source
        return (met if good else unmet)("head_size_512", wanted, found, source)

    return Rule("head_size_512", "both", check, wanted=wanted)


def flashmla_sparse_block() -> Rule:
    """A quantised cache on 10.x has blocks of 64 tokens and no others."""
    wanted = "exactly 64 for a quantised cache on 10.x"

    def check(subject: Subject) -> Finding | None:
        layer, gpu = subject.layer, subject.gpu
        size, cc = layer.block_size, gpu.capability if gpu else None
        if size is None or cc is None or cc[0] != 10 or not layer.quantized_kv:
            return None
        if size == 64:
            return met("block_size", wanted, str(size), "--block-size")
        return unmet("block_size", wanted, str(size), "--block-size", "--block-size 64")

    return Rule("block_size", "both", check, wanted=wanted)
