"""Rows of vLLM 0.33 for sparse latent attention on CUDA."""

from __future__ import annotations

from attnctl.caches.pages import KernelBlocks
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import (
    ANY,
    FP8,
    UNQUANTIZED,
    Backend,
    absent,
    heads,
    kv,
    majors,
    reject,
)
from attnctl.engines.vllm.v0_33.mla import needs_fa3
from attnctl.findings import Finding

BF16 = ("bfloat16",)
HEADS = heads(512, 576)
PAGES_64 = KernelBlocks(sizes=(64,))
SM120_KV = kv("auto", *FP8, "fp8_ds_mla")
FA4_RANK_HEADS = (8, 16, 32, 64, 128)


def _topk(facts: Facts, layer: Layer) -> Finding | None:
    if layer.width("index_topk") is not None or not layer.has_model:
        return None
    return reject("index_topk", "index_topk in the model's configuration", "none")


def _said(topk: int | None) -> str:
    return "no index_topk" if topk is None else f"index_topk {topk}"


def _topk_2048(facts: Facts, layer: Layer) -> Finding | None:
    topk = layer.width("index_topk")
    # dtypes come first in vLLM: where one is refused, the model is not looked at
    refused = layer.dtype not in BF16 or not SM120_KV.test(facts, layer)
    if topk == 2048 or refused or not layer.has_model:
        return None
    return reject("index_topk", "index_topk 2048", _said(topk))


def _topk_by_128(facts: Facts, layer: Layer) -> Finding | None:
    topk = layer.width("index_topk")
    if not layer.has_model or (topk is not None and topk % 128 == 0):
        return None
    return reject("index_topk", "index_topk a multiple of 128", _said(topk))


def _flashinfer_dims(facts: Facts, layer: Layer) -> Finding | None:
    if not layer.has_model:
        return None
    nope, rope = layer.width("qk_nope_head_dim"), layer.width("qk_rope_head_dim")
    if rope == 0:
        fits = nope == 256 and layer.width("kv_lora_rank") == 512
    else:
        fits = nope in (128, 192)
    if fits:
        return None
    wanted = "qk_nope_head_dim 128 or 192; without rotary part 256 and kv_lora_rank 512"
    return reject("mla_dims", wanted, f"qk_nope_head_dim {nope}, qk_rope_head_dim {rope}")


def _no_double_split(facts: Facts, layer: Layer) -> Finding | None:
    if layer.pcp > 1 and layer.dcp > 1:
        return reject("dcp", "not both prefill and decode context parallelism", "both")
    return None


def _sm90_api(facts: Facts, layer: Layer) -> Finding | None:
    if "flashinfer_sm90_mla" in facts.have:
        return None
    found = "none that runs here"
    return reject(
        "package_version", "flashinfer 0.6.18 or newer", found, "install flashinfer-python"
    )


def _sm90_dims(facts: Facts, layer: Layer) -> Finding | None:
    lora, rope = layer.width("kv_lora_rank"), layer.width("qk_rope_head_dim")
    # a dense layer is refused for that, and its widths are not looked at
    if not layer.use_sparse or not layer.has_model or (lora == 512 and rope in (0, 64)):
        return None
    return reject("mla_dims", "kv_lora_rank 512 and qk_rope_head_dim 0 or 64", f"{lora} and {rope}")


def _sm120_api(facts: Facts, layer: Layer) -> Finding | None:
    return None if "flashinfer_usable" in facts.have else absent(facts, "flashinfer")


def _flashmla_512(facts: Facts, layer: Layer) -> Finding | None:
    if layer.head_size != 512:
        return None
    cache = not layer.quantized or layer.kv_cache_dtype == "fp8_ds_mla"
    rope_free = layer.width("qk_rope_head_dim") in (None, 0)
    if facts.major == 9 and cache and rope_free:
        return None
    wanted = (
        "at head size 512: compute capability 9.x, cache unquantised or fp8_ds_mla, no rotary part"
    )
    return reject("head_size_512", wanted, f"{facts.arch}, cache {layer.kv_cache_dtype}")


def _flashmla_nvfp4(facts: Facts, layer: Layer) -> Finding | None:
    if layer.kv_cache_dtype != "nvfp4_ds_mla" or facts.major == 10:
        return None
    return reject("kv_cache_dtype", "compute capability 10.x for nvfp4_ds_mla", facts.arch)


def _fa3_cache(facts: Facts, layer: Layer) -> Finding | None:
    if not layer.quantized:
        return None
    return reject("kv_cache_dtype", "an unquantised KV cache", f"KV cache {layer.kv_cache_dtype}")


def _no_dcp(facts: Facts, layer: Layer) -> Finding | None:
    if layer.dcp == 1:
        return None
    return reject("dcp", "no decode context parallelism", f"{layer.dcp} ranks")


def _fa4_packages(facts: Facts, layer: Layer) -> Finding | None:
    for name in ("flashinfer_usable", "cute_dsl"):
        if name not in facts.have:
            return absent(facts, name)
    return None


def _fa4_dims(facts: Facts, layer: Layer) -> Finding | None:
    lora, rope = layer.width("kv_lora_rank"), layer.width("qk_rope_head_dim")
    if not layer.has_model or (lora == 512 and rope == 64):
        return None
    return reject("mla_dims", "kv_lora_rank 512 and qk_rope_head_dim 64", f"{lora} and {rope}")


def _fa4_heads(facts: Facts, layer: Layer) -> Finding | None:
    if layer.num_heads is None:
        return None
    gathered = layer.num_heads * layer.dcp
    if gathered in FA4_RANK_HEADS and not (layer.dcp > 1 and gathered == 128):
        return None
    wanted = "8, 16, 32, 64 or 128 query heads over the ranks (128 not when split)"
    return reject("mla_dims", wanted, f"{gathered} heads")


def _no_packed_fp8(facts: Facts, layer: Layer) -> Finding | None:
    if layer.kv_cache_dtype != "fp8_ds_mla":
        return None
    return reject("kv_cache_dtype", "a KV cache other than fp8_ds_mla", "KV cache fp8_ds_mla")


# of FlashInfer's sparse kernels on 10.x, in vLLM's order
TENSORRT = (_no_double_split, _no_packed_fp8, _flashinfer_dims, _topk)

ROWS = (
    Backend(
        name="FLASHINFER_MLA_SPARSE",
        heads=HEADS,
        kv=kv(*UNQUANTIZED, *FP8),
        blocks=KernelBlocks(sizes=(32,)),
        capability=majors(10),
        features={"pcp": ANY, "dcp": ANY},
        mla=True,
        sparse=True,
        needs=("fa_wrapper",),
        combinations=TENSORRT,
    ),
    Backend(
        name="FLASHINFER_MLA_SPARSE_SM120",
        heads=HEADS,
        dtypes=BF16,
        kv=SM120_KV,
        blocks=PAGES_64,
        capability=majors(12),
        features={"pcp": ANY},
        mla=True,
        sparse=True,
        needs=("fa_wrapper",),
        combinations=(_sm120_api, _topk_2048),
        packs=("auto", *FP8),
    ),
    Backend(
        name="FLASHINFER_MLA_SPARSE_SM90",
        heads=HEADS,
        dtypes=BF16,
        kv=kv("auto", "bfloat16", *FP8),
        blocks=PAGES_64,
        capability=majors(9),
        features={"pcp": ANY},
        mla=True,
        sparse=True,
        needs=("fa_wrapper",),
        combinations=(_sm90_api, _sm90_dims),
    ),
    Backend(
        name="FLASHMLA_SPARSE",
        heads=HEADS,
        dtypes=BF16,
        kv=kv("auto", "bfloat16", "fp8", "fp8_ds_mla", "nvfp4_ds_mla"),
        blocks=PAGES_64,
        capability=majors(9, 10),
        features={"pcp": ANY, "dcp": ANY},
        mla=True,
        sparse=True,
        needs=("fa_wrapper",),
        combinations=(_flashmla_512, _flashmla_nvfp4),
        packs=FP8,
    ),
    Backend(
        name="FLASH_ATTN_MLA_SPARSE",
        blocks=PAGES_64,
        capability=majors(9),
        features={"pcp": ANY},
        mla=True,
        sparse=True,
        needs=("fa_wrapper",),
        combinations=(_fa3_cache, needs_fa3, _no_dcp, _topk),
    ),
    Backend(
        name="FLASH_ATTN_MLA_SPARSE_FA4",
        heads=heads(576),
        dtypes=BF16,
        kv=kv("auto", "bfloat16"),
        blocks=PAGES_64,
        capability=majors(10),
        features={"pcp": ANY, "dcp": ANY},
        mla=True,
        sparse=True,
        combinations=(
            _fa4_packages,
            _topk_by_128,
            _fa4_dims,
            _fa4_heads,
            *TENSORRT,
        ),
        needs=("fa_wrapper",),
    ),
)
