"""Which FlashAttention vLLM 0.33 runs where; many answers hinge on it."""

from __future__ import annotations

from attnctl.caches.pages import KernelBlocks
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import (
    FP8,
    UNQUANTIZED,
    Check,
    capability,
    kv,
    reject,
    where,
)
from attnctl.findings import Finding

DEFAULT = {9: 3, 10: 4}
FA4_MAJORS = (9, 10, 11)
WIDE_PAGE = 128  # tokens a page of the kernel for head size 256 on 10.x and 11.x


def supported(facts: Facts, version: int) -> bool:
    """Return whether a version is compiled in and runs here."""
    if facts.platform != "cuda" or f"fa{version}" not in facts.have or facts.capability is None:
        return False
    return {2: facts.capability >= (8, 0), 3: facts.major == 9, 4: facts.major in FA4_MAJORS}[
        version
    ]


def version(
    facts: Facts,
    layer: Layer,
    head_size: int | None = None,
    head_size_v: int | None = None,
    *,
    sinks: bool = False,
    opted: bool = False,
    block_size: int | None = None,
) -> int | None:
    """Return the FlashAttention version that runs, None where none does.

    Each check of vLLM asks with the facts that it has: without a head size, without the V width,
    with or without sinks and block size. opted: the caller can run the kernel for head size 256.
    """
    chosen = DEFAULT.get(facts.major, 2)
    chosen = chosen if supported(facts, chosen) else 2
    if chosen == 3 and supported(facts, 4) and _beyond_3(layer, head_size, head_size_v, sinks):
        chosen = 4
    if layer.batch_invariant and chosen == 4:
        chosen = 2
    if chosen == 4 and facts.major >= 10 and not _fits_blackwell(head_size, head_size_v):
        chosen = 2
    if chosen == 4 and _is_wide(facts, head_size, head_size_v):
        # a kernel of its own with 128-token pages
        off_pages = block_size is not None and block_size % WIDE_PAGE != 0
        if not opted or sinks or off_pages or _lacks_wide_kernel(layer):
            chosen = 2
    return chosen if supported(facts, chosen) else None


def _beyond_3(layer: Layer, head_size: int | None, head_size_v: int | None, sinks: bool) -> bool:
    """Return whether FlashAttention 3 lacks something that 4 has on Hopper."""
    if head_size is None:
        return layer.model.diffusion
    unequal = head_size_v not in (None, head_size)
    return head_size > 256 or (sinks and unequal) or layer.model.diffusion


def _fits_blackwell(head_size: int | None, head_size_v: int | None) -> bool:
    if head_size is None or head_size <= 128 or (head_size, head_size_v) == (192, 128):
        return True
    return head_size == 256 and head_size_v in (None, 256)


def _is_wide(facts: Facts, head_size: int | None, head_size_v: int | None) -> bool:
    return facts.major in (10, 11) and head_size == 256 and head_size_v in (None, 256)


def _lacks_wide_kernel(layer: Layer) -> bool:
    """Return whether a model has what the kernel for head size 256 does not do."""
    masks = layer.model.softcap or layer.use_mm_prefix or layer.use_rswa
    return masks or layer.quantized or layer.dcp > 1


def blocks(facts: Facts, layer: Layer) -> KernelBlocks:
    """Return the pages of FLASH_ATTN: 16 tokens, 64 or 128 where a special kernel or XPU asks.

    What the user asks for and sinks do not enter: the pages are declared before either is known.
    """
    size, size_v = layer.head_size, layer.head_size_v
    if facts.platform == "xpu":
        return KernelBlocks(sizes=(64,))
    wide_fp8 = facts.major == 9 and size == 512 and layer.kv_cache_dtype in FP8
    if wide_fp8 and version(facts, layer, size) == 4:
        return KernelBlocks(sizes=(64,))
    if _is_wide(facts, size, size_v) and version(facts, layer, size, size_v, opted=True) == 4:
        return KernelBlocks(sizes=(WIDE_PAGE,))
    return KernelBlocks(sizes=(16,))


def _head_size(facts: Facts, layer: Layer) -> bool:
    most = 512 if facts.platform == "xpu" or supported(facts, 4) else 256
    return layer.head_size % 8 == 0 and layer.head_size <= most


def _declared_fp8(facts: Facts, layer: Layer) -> bool:
    if layer.kv_cache_dtype not in FP8:
        return kv(*UNQUANTIZED).test(facts, layer)
    return facts.platform == "xpu" or _reads_fp8(facts, version(facts, layer))


def _reads_fp8(facts: Facts, chosen: int | None, head_size: int | None = None) -> bool:
    if facts.major == 9:
        return chosen == 3 or (chosen == 4 and head_size in (None, 512))
    return facts.major == 10 and chosen == 4


def _of_layer(facts: Facts, layer: Layer, head_size_v: int | None = None) -> int | None:
    """Return the version for everything that selection knows of a layer."""
    return version(
        facts,
        layer,
        layer.head_size,
        head_size_v,
        sinks=layer.has_sink,
        opted=True,
        block_size=layer.block_size,
    )


def no_fp8_for_this_width(facts: Facts, layer: Layer) -> Finding | None:
    """Return why a quantised cache is refused at this width, if it is."""
    if facts.platform == "xpu" or not layer.quantized:
        return None
    chosen = _of_layer(facts, layer, layer.head_size)
    if layer.kv_cache_dtype != "fp8_e5m2" and _reads_fp8(facts, chosen, layer.head_size):
        return None
    found = f"KV cache {layer.kv_cache_dtype} with {this_width(facts, layer)}"
    return reject("kv_cache_dtype", KV.wanted, found)


def no_fp8_under_prefixes(facts: Facts, layer: Layer) -> Finding | None:
    if layer.use_mm_prefix and layer.quantized and facts.capability == (9, 0):
        return reject("mm_prefix", MM_PREFIX.wanted, with_cache(facts, layer))
    return None


def no_prefixes_at_this_width(facts: Facts, layer: Layer) -> Finding | None:
    if layer.use_mm_prefix and _of_layer(facts, layer) != 4:
        return reject("mm_prefix", MM_PREFIX.wanted, with_cache(facts, layer))
    return None


def no_causal_route(facts: Facts, layer: Layer) -> Finding | None:
    """Return why causal batches beside image prefixes have no kernel, if they have none."""
    if facts.platform == "xpu" or _of_layer(facts, layer) in (3, 4):
        return None
    wanted = "FlashAttention 3 or 4 for causal batches"
    return reject("mm_prefix", wanted, this_width(facts, layer))


def _sinks(facts: Facts, layer: Layer) -> bool:
    if facts.platform == "xpu":
        return True
    at_least_hopper = facts.capability is not None and facts.capability >= (9, 0)
    return at_least_hopper and version(facts, layer) in (3, 4)


def resolves_new(facts: Facts, layer: Layer) -> bool:
    """Return whether FlashAttention 3 or 4 serves these widths of K and V."""
    size, size_v = layer.head_size, layer.head_size_v
    return version(facts, layer, size, size_v, sinks=layer.has_sink) in (3, 4)


def any_width(facts: Facts, layer: Layer) -> str:
    """Return which FlashAttention runs here whatever the width, and where."""
    return _runs(facts, version(facts, layer))


def this_width(facts: Facts, layer: Layer) -> str:
    """Return which FlashAttention runs for this head size, and where."""
    return f"{_runs(facts, _of_layer(facts, layer))}, head size {layer.head_size}"


def with_cache(facts: Facts, layer: Layer) -> str:
    cache = f", KV cache {layer.kv_cache_dtype}" if layer.quantized else ""
    return this_width(facts, layer) + cache


def _runs(facts: Facts, chosen: int | None) -> str:
    name = f"FlashAttention {chosen}" if chosen else "no FlashAttention"
    return f"{name} on {where(facts)}"


HEADS = Check(_head_size, "head size a multiple of 8, at most 256 (512 with FlashAttention 4)")
KV = Check(
    _declared_fp8,
    f"KV cache {', '.join(UNQUANTIZED)}; fp8 with FlashAttention 3 or 4 for this width",
    this_width,
)
SINKS = Check(_sinks, "FlashAttention 3 or 4 on compute capability 9.0 or newer", any_width)
MM_PREFIX = Check(
    lambda facts, layer: supported(facts, 4),
    "FlashAttention 4 for this head size, and no fp8 cache on 9.0",
    with_cache,
)
HEAD_SCALES = Check(
    lambda facts, layer: (version(facts, layer) or 0) >= 3,
    "FlashAttention 3 or 4 for scales per head",
    any_width,
)
SINCE_AMPERE = capability("compute capability 8.0 or newer", lambda cc: cc >= (8, 0))
