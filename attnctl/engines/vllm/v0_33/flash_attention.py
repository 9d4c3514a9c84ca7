"""Which FlashAttention vLLM 0.33 runs where; many answers hinge on it."""

from __future__ import annotations

from attnctl.caches.pages import KernelBlocks
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import FP8, UNQUANTIZED, Check, capability, kv, where

DEFAULT = {9: 3, 10: 4}
FA4_MAJORS = (9, 10, 11)


def supported(facts: Facts, version: int) -> bool:
    """Return whether a version is compiled in and runs here."""
    if facts.platform != "cuda" or f"fa{version}" not in facts.have or facts.capability is None:
        return False
    return {2: facts.capability >= (8, 0), 3: facts.major == 9, 4: facts.major in FA4_MAJORS}[
        version
    ]


def version(facts: Facts, layer: Layer, head_size: int | None = None) -> int | None:
    """Return the FlashAttention version for K and V of one width, None where none runs.

    head_size: None asks without a width, as the checks of sinks and scales do.
    """
    chosen = DEFAULT.get(facts.major, 2)
    wide = (head_size or 0) > 256 or (layer.has_sink and layer.head_size_v is not None)
    if facts.major == 9 and (wide or layer.model.diffusion):
        chosen = 4
    if layer.batch_invariant and chosen == 4:
        chosen = 2
    has_pair_kernel = (head_size, layer.head_size_v) == (192, 128)
    if chosen == 4 and facts.major >= 10 and (head_size or 0) > 128 and not has_pair_kernel:
        # 256 has a kernel of its own with 128-token pages, for callers that opt in
        chosen = 2
    return chosen if supported(facts, chosen) else None


def has_wide_kernel(facts: Facts, layer: Layer) -> bool:
    """Return whether FA4's kernel for head size 256 with 128-token pages serves this layer."""
    return (
        facts.major in (10, 11)
        and layer.head_size == 256
        and supported(facts, 4)
        and not (layer.has_sink or layer.model.softcap or layer.quantized or layer.use_mm_prefix)
        and not (layer.use_rswa or layer.batch_invariant)
        and layer.dcp == 1
        and (layer.block_size is None or layer.block_size % 128 == 0)
    )


def blocks(facts: Facts, layer: Layer) -> KernelBlocks:
    """Return the pages of FLASH_ATTN: 16 tokens, 64 or 128 where a special kernel or XPU asks."""
    if has_wide_kernel(facts, layer):
        return KernelBlocks(sizes=(128,))
    wide_fp8 = facts.major == 9 and layer.head_size == 512 and layer.kv_cache_dtype in FP8
    if facts.platform == "xpu" or (wide_fp8 and supported(facts, 4)):
        return KernelBlocks(sizes=(64,))
    return KernelBlocks(sizes=(16,))


def _head_size(facts: Facts, layer: Layer) -> bool:
    most = 512 if facts.platform == "xpu" or supported(facts, 4) else 256
    return layer.head_size % 8 == 0 and layer.head_size <= most


def _fp8(facts: Facts, layer: Layer) -> bool:
    if layer.kv_cache_dtype not in FP8:
        return kv(*UNQUANTIZED).test(facts, layer)
    if facts.platform == "xpu":
        return True
    chosen = version(facts, layer, layer.head_size)
    if facts.major == 9:
        return chosen == 3 or (chosen == 4 and layer.head_size == 512)
    return facts.major == 10 and chosen == 4


def _sinks(facts: Facts, layer: Layer) -> bool:
    if facts.platform == "xpu":
        return True
    at_least_hopper = facts.capability is not None and facts.capability >= (9, 0)
    return at_least_hopper and version(facts, layer) in (3, 4)


def _mm_prefix(facts: Facts, layer: Layer) -> bool:
    quantized_hopper = facts.capability == (9, 0) and layer.quantized
    # a model with image prefixes never gets the 256-wide kernel
    return version(facts, layer, layer.head_size) == 4 and not quantized_hopper


def resolves_new(facts: Facts, layer: Layer) -> bool:
    """Return whether FlashAttention 3 or 4 serves this width."""
    return version(facts, layer, layer.head_size) in (3, 4)


def any_width(facts: Facts, layer: Layer) -> str:
    """Return which FlashAttention runs here whatever the width, and where."""
    return _runs(facts, version(facts, layer))


def this_width(facts: Facts, layer: Layer) -> str:
    """Return which FlashAttention runs for this head size, and where."""
    return f"{_runs(facts, version(facts, layer, layer.head_size))}, head size {layer.head_size}"


def with_cache(facts: Facts, layer: Layer) -> str:
    cache = f", KV cache {layer.kv_cache_dtype}" if layer.quantized else ""
    return this_width(facts, layer) + cache


def _runs(facts: Facts, chosen: int | None) -> str:
    name = f"FlashAttention {chosen}" if chosen else "no FlashAttention"
    return f"{name} on {where(facts)}"


HEADS = Check(_head_size, "head size a multiple of 8, at most 256 (512 with FlashAttention 4)")
KV = Check(
    _fp8,
    f"KV cache {', '.join(UNQUANTIZED)}; fp8 with FlashAttention 3 or 4 for this width",
    this_width,
)
SINKS = Check(_sinks, "FlashAttention 3 or 4 on compute capability 9.0 or newer", any_width)
MM_PREFIX = Check(
    _mm_prefix, "FlashAttention 4 for this head size, and no fp8 cache on 9.0", with_cache
)
HEAD_SCALES = Check(
    lambda facts, layer: (version(facts, layer) or 0) >= 3,
    "FlashAttention 3 or 4 for scales per head",
    any_width,
)
SINCE_AMPERE = capability("compute capability 8.0 or newer", lambda cc: cc >= (8, 0))
