"""What vLLM's selector looks at: facts of the platform, and one layer's configuration.

Names in `Facts.have` say what can be imported or is compiled in:
fa2, fa3, fa4 (vLLM's own FlashAttention extensions; 4 needs no more than its source file),
flashmla (extension in vLLM's wheel), flashinfer (importable), flashinfer_usable (vLLM's
has_flashinfer(): importable, and nvcc or pre-built cubins there), flashinfer_cubin (cubins there or
reachable), flashinfer_sm90_mla (0.6.18 or newer), cute_dsl, tokenspeed_mla, b12x, aiter,
aiter_env (VLLM_ROCM_USE_AITER=1), aiter_causal (its MLA decode takes `causal`), flash_attn (the
upstream package, for prefill on ROCm), amx, avx512, zen.
"""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.exits import InputError

FLASHINFER_FULL = frozenset(
    {"flashinfer", "flashinfer_usable", "flashinfer_cubin", "flashinfer_sm90_mla", "cute_dsl"}
)
WHEEL = frozenset({"fa2", "fa3", "fa4", "flashmla"})

# what the profiles of recorded cases assert
PROFILES: dict[str, dict[str, frozenset[str]]] = {
    "cuda": {
        "full": WHEEL | FLASHINFER_FULL | {"tokenspeed_mla", "b12x"},
        # a plain pip install without nvcc and network: importable, nothing to run
        "pip_offline": WHEEL | {"flashinfer", "tokenspeed_mla"},
        "bare": WHEEL,
        "noext": frozenset({"fa4"}),
    },
    "rocm": {
        "aiter_on": frozenset({"aiter", "aiter_env", "flash_attn"}),
        "aiter_off": frozenset({"aiter", "flash_attn"}),
        "bare": frozenset(),
    },
    "xpu": {"full": frozenset()},
    "cpu": {"full": frozenset()},
}
CPU_FEATURES = {"x86-amx": frozenset({"amx", "avx512"}), "x86-avx512": frozenset({"avx512"})}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A platform in vLLM's terms.

    arch: "9.0", "gfx942", "xpu", "x86-amx". capability: (major, minor); ROCm derives one from the
    arch; None on XPU and CPU. unknown: names that could not be asked about.
    """

    platform: str
    arch: str
    capability: tuple[int, int] | None = None
    have: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()

    @property
    def major(self) -> int:
        return self.capability[0] if self.capability else 0

    def has(self, name: str) -> bool:
        """True where the name is there; "fa_wrapper" is any compiled FlashAttention on CUDA."""
        if name == "fa_wrapper":
            return self.platform != "cuda" or bool(self.have & {"fa2", "fa3"})
        return name in self.have

    @property
    def rdna(self) -> int:
        """Generation of a consumer AMD GPU (3 for gfx11xx, 4 for gfx120x), else 0."""
        if self.arch.startswith("gfx120"):
            return 4
        return {"gfx10": 2, "gfx11": 3}.get(self.arch[:5], 0) if len(self.arch) == 7 else 0

    @property
    def cdna(self) -> int:
        """Generation of an AMD data-centre GPU (3 for gfx94x, 4 for gfx950), else 0."""
        known = {"gfx908": 1, "gfx90a": 2, "gfx940": 3, "gfx941": 3, "gfx942": 3}
        return known.get(self.arch, {"gfx950": 4, "gfx1250": 5}.get(self.arch, 0))

    @property
    def aiter_enabled(self) -> bool:
        return {"aiter", "aiter_env"} <= self.have and self.cdna >= 3


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What backends read from the model's own configuration: heads per rank, MLA widths."""

    num_heads: int | None = None
    num_kv_heads: int | None = None
    attn_type: str | None = None
    softcap: bool = False
    diffusion: bool = False
    hf: dict[str, Any] = {}


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer's selector configuration; field names are those of the recorded cases.

    head_size: K width, for MLA kv_lora_rank + qk_rope_head_dim. num_heads: per rank, MLA only.
    head_size_v: V width where it differs. block_size: None unless the user asked for one.
    backend: the forced one.
    """

    head_size: int
    head_size_v: int | None = None
    dtype: str = "bfloat16"
    kv_cache_dtype: str | None = "auto"
    block_size: int | None = None
    use_mla: bool = False
    use_sparse: bool = False
    num_heads: int | None = None
    has_sink: bool = False
    has_sliding_window: bool = False
    use_mm_prefix: bool = False
    use_rswa: bool = False
    attn_type: str = "decoder"
    use_non_causal: bool = False
    batch_invariant: bool = False
    use_kv_connector: bool = False
    use_adaptive_verification: bool = False
    per_head_scales: bool = False
    dcp: int = 1
    pcp: int = 1
    backend: str | None = None
    want_prefill: bool = False
    model: ModelFacts = ModelFacts()

    @property
    def quantized(self) -> bool:
        return self.kv_cache_dtype not in (None, "auto", "float16", "bfloat16", "float32")

    def width(self, name: str) -> int | None:
        """Return a width of the model (qk_nope_head_dim, ...), None where it is not known."""
        value = self.model.hf.get(name)
        return value if isinstance(value, int) else None

    @property
    def has_model(self) -> bool:
        """False where no model configuration is known: its checks then pass."""
        return bool(self.model.hf)


def rocm_capability(arch: str) -> tuple[int, int] | None:
    """Return what ROCm reports for an arch: gfx90a (9, 0), gfx942 (9, 4), gfx1201 (12, 0)."""
    digits = arch.removeprefix("gfx")
    if not digits[:-2].isdigit() or not digits[-2:-1].isdigit():
        return None
    return int(digits[:-2]), int(digits[-2])


def facts_of(platform: str, arch: str, installed: str | frozenset[str]) -> Facts:
    """Return the facts of a recorded case; `installed` is a profile or names as in `Facts.have`.

    InputError for a platform, profile or CUDA arch that nobody has heard of.
    """
    have = installed if isinstance(installed, frozenset) else _profile(platform, installed)
    capability = None
    if platform == "cuda":
        capability = _cuda_capability(arch)
    elif platform == "rocm":
        capability = rocm_capability(arch)
    elif platform == "cpu":
        have = have | CPU_FEATURES.get(arch, frozenset())
    return Facts(platform=platform, arch=arch, capability=capability, have=have)


def _profile(platform: str, installed: str) -> frozenset[str]:
    profiles = PROFILES.get(platform)
    if profiles is None:
        raise InputError(f"platform {platform}: not one of {', '.join(PROFILES)}")
    if installed not in profiles:
        raise InputError(f"profile {installed}: {platform} has {', '.join(profiles)}")
    return profiles[installed]


def _cuda_capability(arch: str) -> tuple[int, int]:
    major, _, minor = arch.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise InputError(f"arch {arch}: a compute capability like 9.0 is wanted")
    return int(major), int(minor)
