"""What vLLM 0.33 does on XPU and CPU: straight branches, and the rows that they name."""

from __future__ import annotations

from attnctl.caches.pages import KernelBlocks
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
    Test,
    heads,
    kv,
)

ALL_TYPES = ("decoder", "encoder", "encoder_only", "encoder_decoder")
CPU_FP8 = (*FP8, "fp8_e5m2")


def _cpu_kv(facts: Facts, layer: Layer) -> bool:
    if layer.kv_cache_dtype in CPU_FP8:
        return bool(facts.have & {"amx", "avx512"})
    return layer.kv_cache_dtype in (None, *UNQUANTIZED)


CPU_KV = Check(
    _cpu_kv, "KV cache unquantised, or fp8 with AMX or AVX-512", lambda facts, layer: facts.arch
)

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
)


def _go(pick: str, when: Test, valid: str | None = None) -> Branch:
    return Branch(when, pick=pick, valid=valid)


def _raise(error: str, because: str, when: Test) -> Branch:
    return Branch(when, error=error, because=because)


def _may_compose(layer: Layer) -> bool:
    """Return whether XPU looks at its composite of two backends for image prefixes."""
    nothing_else = layer.backend in (None, "TRITON_FLASH_ATTN")
    return layer.use_mm_prefix and nothing_else and layer.dtype in HALF


# no capability, hardly any checks: the first step that fits decides
XPU = (
    _go("TURBOQUANT", lambda f, x: str(x.kv_cache_dtype).startswith("turboquant_")),
    _go("XPU_MLA_SPARSE", lambda f, x: x.use_sparse),
    _go("TRITON_MLA", lambda f, x: x.use_mla and x.backend == "TRITON_MLA"),
    _raise(
        "ValueError",
        "on XPU only TRITON_MLA and FLASH_ATTN_MLA can be forced for latent attention",
        lambda f, x: x.use_mla and x.backend not in (None, "FLASH_ATTN_MLA"),
    ),
    _go("FLASH_ATTN_MLA", lambda f, x: x.use_mla, valid="XPU_FLASH_ATTN_MLA"),
    _raise(
        "ValueError",
        "XPU's FLASH_ATTN_MLA does not take this layer",
        lambda f, x: x.use_mla and x.backend is not None,
    ),
    _go("TRITON_MLA", lambda f, x: x.use_mla),
    _go("TRITON_ATTN", lambda f, x: x.backend == "TRITON_ATTN"),
    _go("TRITON_ATTN", lambda f, x: x.batch_invariant and x.backend != "FLASH_ATTN"),
    _go("FLASH_ATTN", lambda f, x: x.use_mm_prefix and x.backend == "FLASH_ATTN"),
    _go(
        "TRITON_FLASH_ATTN",
        lambda f, x: _may_compose(x) and x.head_size in (256, 512),
    ),
    _raise(
        "ValueError",
        "TRITON_FLASH_ATTN takes head size 256 or 512 only",
        lambda f, x: _may_compose(x) and x.backend is not None,
    ),
    _go("TRITON_ATTN", lambda f, x: x.use_mm_prefix),
    _go("TRITON_ATTN", lambda f, x: x.dtype == "float32"),
    _go("FLASH_ATTN", lambda f, x: x.backend in (None, "FLASH_ATTN")),
    _raise("ValueError", "on XPU only FLASH_ATTN and TRITON_ATTN can be forced", lambda f, x: True),
)

CPU = (
    _raise(
        "NotImplementedError",
        "no CPU backend takes sparse latent attention",
        lambda f, x: x.use_sparse,
    ),
    _raise(
        "ValueError",
        "latent attention on CPU takes an unquantised cache only",
        lambda f, x: x.use_mla and x.quantized,
    ),
    _go("AMX_MLA", lambda f, x: x.use_mla and "amx" in f.have and x.backend != "CPU_MLA"),
    _go("CPU_MLA", lambda f, x: x.use_mla),
    _raise(
        "ValueError",
        "CPU_ATTN takes an unquantised cache, or fp8 with AMX or AVX-512",
        lambda f, x: not _cpu_kv(f, x),
    ),
    _go("CPU_ATTN", lambda f, x: True),
)

BRANCHES = {"xpu": XPU, "cpu": CPU}
