"""What vLLM 0.33 does on XPU and CPU: straight branches, and the rows that they name."""

from __future__ import annotations

from attnctl.cache_pages import KernelBlocks
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import (
    ANY,
    FLOATS,
    FP8,
    HALF,
    UNQUANTIZED,
    Backend,
    Branch,
    Check,
    heads,
    kv,
)

ALL_TYPES = ("decoder", "encoder", "encoder_only", "encoder_decoder")
CPU_FP8 = (*FP8, "fp8_e5m2")


def _cpu_kv(facts: Facts, layer: Layer) -> bool:
    if layer.kv_cache_dtype in CPU_FP8:
        return bool(facts.have & {"amx", "avx512"})
    return layer.kv_cache_dtype in (None, *UNQUANTIZED)


CPU_KV = Check(_cpu_kv, "KV cache unquantised, or fp8 with AMX or AVX-512")

ROWS = (
    Backend(
        name="CPU_ATTN",
        heads=heads(32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512),
        dtypes=FLOATS,
        kv=CPU_KV,
        blocks=KernelBlocks(sizes=(32,)),
        attn_types=ALL_TYPES,
        features={"sliding_window": ANY, "non_causal": ANY},
    ),
    Backend(
        name="CPU_MLA",
        heads=heads(576),
        dtypes=FLOATS,
        kv=kv("auto"),
        blocks=KernelBlocks(sizes=(16,), exact=True),
        features={"pcp": ANY},
        mla=True,
    ),
    Backend(
        name="AMX_MLA",
        heads=heads(576),
        dtypes=("bfloat16",),
        kv=kv("auto"),
        blocks=KernelBlocks(sizes=(32,)),
        features={"pcp": ANY},
        mla=True,
    ),
    Backend(
        name="XPU_FLASH_ATTN_MLA",
        heads=heads(576),
        dtypes=HALF,
        blocks=KernelBlocks(sizes=(64,)),
        features={"pcp": ANY, "batch_invariant": ANY},
        mla=True,
    ),
    Backend(name="XPU_MLA_SPARSE", mla=True, sparse=True),
)


def _when(wanted: str, test: object) -> Check:
    return Check(test, wanted)  # type: ignore[arg-type]


def _is(*names: str | None) -> Check:
    return Check(lambda facts, layer: layer.backend in names, f"forced {names}")


XPU = (
    Branch(
        Check(lambda f, x: str(x.kv_cache_dtype).startswith("turboquant_"), "turboquant cache"),
        pick="TURBOQUANT",
    ),
    Branch(Check(lambda f, x: x.use_sparse, "sparse"), pick="XPU_MLA_SPARSE"),
    Branch(
        Check(lambda f, x: x.use_mla and x.backend == "TRITON_MLA", "MLA, TRITON_MLA forced"),
        pick="TRITON_MLA",
    ),
    Branch(
        Check(lambda f, x: x.use_mla and x.backend not in (None, "FLASH_ATTN_MLA"), "MLA, forced"),
        error="ValueError",
    ),
    Branch(Check(lambda f, x: x.use_mla, "MLA"), pick="FLASH_ATTN_MLA", valid="XPU_FLASH_ATTN_MLA"),
    Branch(
        Check(lambda f, x: x.use_mla and x.backend is not None, "MLA, forced"), error="ValueError"
    ),
    Branch(Check(lambda f, x: x.use_mla, "MLA that FLASH_ATTN_MLA refuses"), pick="TRITON_MLA"),
    Branch(_is("TRITON_ATTN"), pick="TRITON_ATTN"),
    Branch(
        Check(lambda f, x: x.batch_invariant and x.backend != "FLASH_ATTN", "batch-invariant mode"),
        pick="TRITON_ATTN",
    ),
    Branch(
        Check(lambda f, x: x.use_mm_prefix and x.backend == "FLASH_ATTN", "FLASH_ATTN forced"),
        pick="FLASH_ATTN",
    ),
    Branch(
        Check(
            lambda f, x: x.use_mm_prefix and x.dtype in HALF and x.head_size in (256, 512),
            "image prefixes, 16 bits, head size 256 or 512",
        ),
        pick="TRITON_FLASH_ATTN",
    ),
    Branch(
        Check(lambda f, x: x.use_mm_prefix and x.backend == "TRITON_FLASH_ATTN", "forced"),
        error="ValueError",
    ),
    Branch(Check(lambda f, x: x.use_mm_prefix, "image prefixes"), pick="TRITON_ATTN"),
    Branch(Check(lambda f, x: x.dtype == "float32", "float32"), pick="TRITON_ATTN"),
    Branch(_is(None, "FLASH_ATTN"), pick="FLASH_ATTN"),
    Branch(ANY, error="ValueError"),
)

CPU = (
    Branch(Check(lambda f, x: x.use_sparse, "sparse"), error="NotImplementedError"),
    Branch(
        Check(lambda f, x: x.use_mla and x.quantized, "MLA with a quantised cache"),
        error="ValueError",
    ),
    Branch(
        Check(
            lambda f, x: x.use_mla and "amx" in f.have and x.backend != "CPU_MLA", "MLA, AMX tiles"
        ),
        pick="AMX_MLA",
    ),
    Branch(Check(lambda f, x: x.use_mla, "MLA"), pick="CPU_MLA"),
    Branch(
        Check(lambda f, x: not _cpu_kv(f, x), "a cache that no CPU kernel takes"),
        error="ValueError",
    ),
    Branch(ANY, pick="CPU_ATTN"),
)

BRANCHES = {"xpu": XPU, "cpu": CPU}
