"""Rows of vLLM 0.33 for plain attention on CUDA (some of them are listed on ROCm as well)."""

from __future__ import annotations

import msgspec

from attnctl.caches.pages import KernelBlocks
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import (
    ANY,
    FLOATS,
    FP8,
    HALF,
    UNQUANTIZED,
    Backend,
    Check,
    capability,
    heads,
    heads_from,
    kv,
    majors,
    reject,
    where,
)
from attnctl.engines.vllm.v0_33 import flash_attention as fa
from attnctl.findings import Finding

ALL_TYPES = ("decoder", "encoder", "encoder_only", "encoder_decoder")
PER_TOKEN_HEAD = ("int4_per_token_head", "int8_per_token_head", "fp8_per_token_head")
CACHE_FP8 = (*FP8, "fp8_e5m2")
PAGES_16 = KernelBlocks(sizes=(16,))

FA_FEATURES = {
    "sinks": fa.SINKS,
    "mm_prefix": fa.MM_PREFIX,
    "per_head_scales": fa.HEAD_SCALES,
    "sliding_window": ANY,
    "rswa": ANY,
    "non_causal": ANY,
    "batch_invariant": ANY,
    "dcp": ANY,
}
# in vLLM's order: the first one counts
FA_COMBINATIONS = (
    fa.no_fp8_under_prefixes,
    fa.no_fp8_for_this_width,
    fa.no_prefixes_at_this_width,
)
PAIR_WIDTH_V = 128  # what FLASH_ATTN_DIFFKV takes for the V width until a layer says otherwise


def has_trtllm(facts: Facts, layer: Layer) -> bool:
    """Return whether FlashInfer's TensorRT-LLM kernels serve both phases (10.x)."""
    return facts.major == 10 and _has_cubins(facts, layer)


def _has_cubins(facts: Facts, layer: Layer) -> bool:
    # batch-invariant mode turns those kernels off
    return "flashinfer_cubin" in facts.have and not layer.batch_invariant


def _flashinfer_kv(facts: Facts, layer: Layer) -> bool:
    if str(layer.kv_cache_dtype).startswith("nvfp4"):
        # on 10.x vLLM looks at the beginning of the name alone
        own = facts.major in (8, 9, 12) and layer.kv_cache_dtype == "nvfp4"
        return own or has_trtllm(facts, layer)
    return layer.kv_cache_dtype in (None, *UNQUANTIZED, *CACHE_FP8)


def _flashinfer_sinks(facts: Facts, layer: Layer) -> bool:
    if facts.capability == (9, 0) or facts.major == 12:
        return _has_cubins(facts, layer)
    return has_trtllm(facts, layer)


def _kernels(facts: Facts, layer: Layer) -> str:
    """Return what decides whether FlashInfer's pre-built kernels serve here."""
    cubins = "cubins" if "flashinfer_cubin" in facts.have else "no cubins"
    off = ", switched off by batch invariance" if layer.batch_invariant else ""
    return f"{cubins} on {where(facts)}{off}"


def _flashinfer_nvfp4(facts: Facts, layer: Layer) -> Finding | None:
    if layer.kv_cache_dtype != "nvfp4" or facts.major not in (8, 9, 12):
        return None
    if layer.head_size == 64 or layer.has_sink:
        found = "attention sinks" if layer.has_sink else "head size 64"
        return reject("kv_cache_dtype", "nvfp4 cache without sinks and not at head size 64", found)
    return None


def _flashinfer_blocks(facts: Facts, layer: Layer) -> KernelBlocks:
    q, k = layer.model.num_heads, layer.model.num_kv_heads
    grouped = q is not None and k is not None and q // k > 1 and q % k == 0
    if grouped and has_trtllm(facts, layer):
        return KernelBlocks(sizes=(16, 32, 64, 128, 256, 512, 1024))
    return KernelBlocks(sizes=(16, 32, 64))


def _is_turboquant(facts: Facts, layer: Layer) -> bool:
    return str(layer.kv_cache_dtype).startswith("turboquant_")


FLASHINFER_HEADS = heads(64, 128, 256, 512)
FLASHINFER_KV = Check(
    _flashinfer_kv, "KV cache unquantised, fp8, or nvfp4 where its kernels are", _kernels
)
FLASHINFER_CC = capability("compute capability 8.0 to 12.1", lambda cc: (8, 0) <= cc <= (12, 1))
TRITON_KV = kv(*UNQUANTIZED, *CACHE_FP8, *PER_TOKEN_HEAD)


def both(first: Check, second: Check) -> Check:
    wanted = f"{first.wanted}; {second.wanted}"
    return Check(lambda f, x: first.test(f, x) and second.test(f, x), wanted, first.found)


def _pair_blocks(facts: Facts, layer: Layer) -> KernelBlocks:
    width = layer.head_size_v or PAIR_WIDTH_V
    return fa.blocks(facts, msgspec.structs.replace(layer, head_size_v=width))


ROWS = (
    Backend(
        name="FLASH_ATTN",
        heads=fa.HEADS,
        kv=fa.KV,
        blocks=fa.blocks,
        capability=fa.SINCE_AMPERE,
        attn_types=ALL_TYPES,
        features=FA_FEATURES,
        needs=("fa_wrapper",),
        combinations=FA_COMBINATIONS,
    ),
    Backend(
        name="FLASHINFER",
        heads=FLASHINFER_HEADS,
        kv=FLASHINFER_KV,
        blocks=_flashinfer_blocks,
        capability=FLASHINFER_CC,
        features={
            "sinks": Check(
                _flashinfer_sinks,
                "FlashInfer's cubins and XQA (9.0, 12.x) or TensorRT-LLM (10.x) kernels",
                _kernels,
            ),
            "sliding_window": ANY,
            "non_causal": ANY,
            "dcp": ANY,
        },
        needs=("flashinfer",),
        combinations=(_flashinfer_nvfp4,),
    ),
    Backend(
        name="TRITON_ATTN",
        heads=heads_from(32),
        dtypes=FLOATS,
        kv=TRITON_KV,
        blocks=PAGES_16,
        attn_types=ALL_TYPES,
        features=dict.fromkeys(
            ("sinks", "mm_prefix", "sliding_window", "rswa", "non_causal", "batch_invariant"), ANY
        ),
    ),
    Backend(
        name="FLEX_ATTENTION",
        dtypes=FLOATS,
        blocks=PAGES_16,
        attn_types=("decoder", "encoder_only"),
        features=dict.fromkeys(
            ("mm_prefix", "sliding_window", "rswa", "non_causal", "batch_invariant"), ANY
        ),
        needs=("fa_wrapper",),
    ),
    Backend(
        name="TURBOQUANT",
        heads=heads_from(1),
        kv=Check(_is_turboquant, "KV cache turboquant_*"),
        blocks=KernelBlocks(sizes=(16, 32, 64, 128)),
        needs=("fa_wrapper",),
    ),
    Backend(
        name="TRITON_FLASH_ATTN",
        heads=both(heads(256, 512), fa.HEADS),
        kv=both(fa.KV, TRITON_KV),
        blocks=fa.blocks,
        capability=majors(9),
        features={"mm_prefix": ANY, "sliding_window": ANY, "rswa": ANY},
        needs=("fa_wrapper",),
        combinations=(fa.no_fp8_for_this_width, fa.no_causal_route),
    ),
    Backend(
        name="TRITON_FLASHINFER",
        heads=both(heads(256, 512), FLASHINFER_HEADS),
        kv=both(FLASHINFER_KV, TRITON_KV),
        blocks=KernelBlocks(sizes=(64,)),
        capability=majors(10),
        features={"mm_prefix": ANY, "sliding_window": ANY},
        needs=("flashinfer",),
    ),
    Backend(
        name="FLASH_ATTN_DIFFKV",
        heads=fa.HEADS,
        kv=fa.KV,
        blocks=_pair_blocks,
        capability=fa.SINCE_AMPERE,
        attn_types=ALL_TYPES,
        features=FA_FEATURES,
        needs=("fa_wrapper",),
        combinations=FA_COMBINATIONS,
    ),
    Backend(
        name="TRITON_ATTN_DIFFKV",
        heads=heads_from(32),
        dtypes=FLOATS,
        kv=kv("auto", "bfloat16", *FP8),
        blocks=PAGES_16,
        features=dict.fromkeys(
            ("sinks", "mm_prefix", "sliding_window", "rswa", "non_causal", "batch_invariant"), ANY
        ),
    ),
    Backend(
        name="B12X",
        heads=heads(64, 128, 192, 256),
        dtypes=("bfloat16",),
        kv=kv("auto", "bfloat16", *FP8),
        blocks=KernelBlocks(sizes=(64, 128), exact=True, prefers=128),
        capability=capability(
            "compute capability 12.0 or 12.1", lambda cc: cc in ((12, 0), (12, 1))
        ),
        features={"sinks": ANY, "sliding_window": ANY},
        needs=("b12x",),
    ),
    Backend(
        name="HPC_ATTN",
        heads=heads(128),
        dtypes=HALF,
        kv=kv("auto", "bfloat16", "fp8_e4m3"),
        blocks=KernelBlocks(sizes=(64,)),
        capability=capability("compute capability 9.0", lambda cc: cc == (9, 0)),
    ),
)
