"""Rows of vLLM 0.33 for ROCm."""

from __future__ import annotations

from attnctl.caches.pages import KernelBlocks
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import (
    ANY,
    FLOATS,
    FP8,
    UNQUANTIZED,
    Backend,
    Check,
    heads,
    heads_from,
    kv,
    reject,
)
from attnctl.findings import Finding

CACHE_KV = kv(*UNQUANTIZED, *FP8, "fp8_e5m2")
PAGES_16 = KernelBlocks(sizes=(16,))
ALL_TYPES = ("decoder", "encoder", "encoder_only", "encoder_decoder")
MI300 = ("gfx942", "gfx950")


def _segmented_kv(facts: Facts, layer: Layer) -> bool:
    if layer.kv_cache_dtype in FP8:
        return facts.rdna == 4
    return layer.kv_cache_dtype in (None, *UNQUANTIZED)


def _is_octave(facts: Facts, layer: Layer) -> bool:
    return layer.kv_cache_dtype is None or layer.kv_cache_dtype.startswith("octave_")


def _has_causal_switch(facts: Facts, layer: Layer) -> bool:
    return facts.arch == "gfx950" and "aiter_causal" in facts.have


def _no_fp16_non_causal(facts: Facts, layer: Layer) -> Finding | None:
    if layer.use_non_causal and layer.dtype == "float16":
        return reject(
            "non_causal", "bfloat16 for non-causal decoding", "float16", "--dtype bfloat16"
        )
    return None


def _causal_found(facts: Facts, layer: Layer) -> str:
    switch = "with" if "aiter_causal" in facts.have else "without"
    return f"{facts.arch}, {switch} such an aiter"


NON_CAUSAL = Check(
    _has_causal_switch, "gfx950 and an aiter whose MLA decode takes `causal`", _causal_found
)

MI300_ONLY = Check(lambda f, x: f.arch in MI300, "gfx942 or gfx950", lambda f, x: f.arch)
AITER_MLA_FEATURES = {"pcp": ANY, "dcp": ANY, "non_causal": NON_CAUSAL}


def _aiter_mla(name: str) -> Backend:
    return Backend(
        name=name,
        kv=CACHE_KV,
        features=AITER_MLA_FEATURES,
        mla=True,
        combinations=(_no_fp16_non_causal,),
    )


ROWS = (
    Backend(
        name="ROCM_ATTN",
        heads=heads(32, 64, 80, 96, 128, 160, 192, 224, 256),
        dtypes=FLOATS,
        kv=CACHE_KV,
        blocks=PAGES_16,
        attn_types=("decoder", "encoder", "encoder_only"),
        features={"sliding_window": ANY, "non_causal": ANY},
        refuses_connector=True,
    ),
    Backend(
        name="ROCM_AITER_FA",
        heads=heads(64, 128, 256),
        kv=CACHE_KV,
        blocks=KernelBlocks(sizes=(16, 32)),
        capability=Check(lambda facts, layer: facts.cdna >= 3, "CDNA 3 or newer"),
        features={"sinks": ANY, "sliding_window": ANY, "non_causal": ANY},
    ),
    Backend(
        name="ROCM_AITER_UNIFIED_ATTN",
        heads=heads_from(32),
        kv=CACHE_KV,
        blocks=KernelBlocks(sizes=(16,), prefers=64),
        attn_types=ALL_TYPES,
        features={"sinks": ANY, "sliding_window": ANY},
    ),
    Backend(
        name="ROCM_SEGMENTED_ATTN",
        heads=heads(64, 128, 256),
        kv=Check(_segmented_kv, "KV cache unquantised, fp8 on gfx12", lambda f, x: f.arch),
        blocks=PAGES_16,
        capability=Check(lambda facts, layer: facts.rdna > 0, "an RDNA GPU"),
        features={"sinks": ANY, "sliding_window": ANY, "non_causal": ANY},
        refuses_connector=True,
    ),
    Backend(
        name="ROCM_OCTAVE",
        heads=heads(256),
        kv=Check(_is_octave, "KV cache octave_*"),
        blocks=PAGES_16,
        capability=Check(
            lambda facts, layer: facts.rdna == 3 or facts.cdna == 3, "RDNA 3 or CDNA 3"
        ),
    ),
    Backend(
        name="ULTRAQUANT",
        heads=heads_from(1),
        dtypes=("bfloat16",),
        kv=Check(lambda f, x: x.kv_cache_dtype == "ultraquant_4bit", "KV cache ultraquant_4bit"),
        blocks=KernelBlocks(sizes=(16, 32, 64, 128), prefers=64),
    ),
    _aiter_mla("ROCM_AITER_MLA"),
    _aiter_mla("ROCM_AITER_TRITON_MLA"),
    Backend(
        name="ROCM_AITER_MLA_SPARSE",
        kv=kv(*UNQUANTIZED, *FP8),
        blocks=KernelBlocks(sizes=(1, 16)),
        features={"pcp": ANY, "sinks": MI300_ONLY},
        mla=True,
        sparse=True,
    ),
)
