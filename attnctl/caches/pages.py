"""Bytes of attention caches per token, and the block size at which their pages hold a state.

Sizes are in bytes, block sizes in tokens. `unify` is vLLM 0.33's rule for hybrid models; what an
engine decides itself (kernel block sizes, floors, rounding) comes in as arguments. Layers that keep
an unquantised cache beside quantised ones are not covered.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil, lcm

import msgspec

from attnctl.caches.states import itemsize
from attnctl.exits import InputError

# latent rows that DeepSeek's sparse kernels pack themselves, scales and rope part included
PACKED_LATENT_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
SCALE_BYTES = 4  # one float32 scale per token and head, for K and for V
NVFP4_GROUP = 16  # elements that share one fp8 scale


class KernelBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Which block sizes a kernel takes.

    sizes: those that it lists; every multiple is taken too, since a large block is split into
    kernel blocks. exact: only the listed ones. prefers: taken whatever the default is.
    """

    sizes: tuple[int, ...]
    exact: bool = False
    prefers: int | None = None

    def accepts(self, block_size: int | None) -> bool:
        if block_size is None:
            return True
        if self.exact:
            return block_size in self.sizes
        return any(block_size % size == 0 for size in self.sizes)

    def preferred(self, default: int) -> int:
        """Return the block size that a model gets whose only kernel is this one."""
        if self.prefers is not None:
            return self.prefers
        return default if self.accepts(default) else min(self.sizes)


class HybridBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """One page size for attention blocks and states.

    block_size: tokens of an attention block. page_bytes: its bytes in one layer. state_bytes: the
    state of one layer. padded_page_bytes: what a state's page is padded to, None where it fits
    exactly. mamba_block_size: tokens between two kept states, None where only the last is kept.
    """

    block_size: int
    page_bytes: int
    state_bytes: int
    padded_page_bytes: int | None = None
    mamba_block_size: int | None = None


def head_bytes(width: int, kv_cache_dtype: str, dtype: str) -> int:
    """Return the bytes of one K or V vector of `width` elements, scales included.

    kv_cache_dtype: "auto" is the model's dtype; int4, int8 and fp8 per token and head carry one
    float32 scale; nvfp4 packs two elements a byte and adds one fp8 scale per 16.
    """
    if kv_cache_dtype == "auto":
        return width * itemsize(dtype)
    if kv_cache_dtype.startswith("nvfp4"):
        return width // 2 + width // NVFP4_GROUP
    if kv_cache_dtype == "int4_per_token_head":
        return width // 2 + SCALE_BYTES
    scale = SCALE_BYTES if kv_cache_dtype.endswith("_per_token_head") else 0
    return width * itemsize(kv_cache_dtype) + scale


def token_bytes(
    num_kv_heads: int,
    head_size: int,
    head_size_v: int,
    kv_cache_dtype: str,
    dtype: str,
    tp: int = 1,
) -> int:
    """Return what one token takes in one layer of one rank: Hk * (D + Dv) elements.

    KV heads that do not divide are replicated, so every rank has at least one.
    """
    heads = max(1, num_kv_heads // tp)
    k = head_bytes(head_size, kv_cache_dtype, dtype)
    return heads * (k + head_bytes(head_size_v, kv_cache_dtype, dtype))


def latent_bytes(row: int, kv_cache_dtype: str, dtype: str) -> int:
    """Return what one token takes in one MLA layer: its latent row, the same on every rank.

    row: kv_lora_rank + qk_rope_head_dim. Packed dtypes have a size of their own; a row with a
    scale per token carries two.
    """
    packed = PACKED_LATENT_BYTES.get(kv_cache_dtype)
    if packed is not None:
        return packed
    scale = SCALE_BYTES if kv_cache_dtype.endswith("_per_token_head") else 0
    return head_bytes(row, kv_cache_dtype, dtype) + scale


def indexer_bytes(head_dim: int) -> int:
    """Return what one token takes in a sparse indexer: fp8 keys and a float32 scale per 128."""
    return head_dim + SCALE_BYTES * (head_dim // 128)


def common_block_size(kernels: Sequence[KernelBlocks], default: int) -> int | None:
    """Return the block size that every kernel takes: alone its preferred one, else the default or
    the smallest least common multiple of one listed size each; None where there is none.
    """
    if not kernels:
        return default
    if len(kernels) == 1:
        return kernels[0].preferred(default)
    if all(kernel.accepts(default) for kernel in kernels):
        return default
    candidates = sorted({lcm(*sizes) for sizes in product(*(kernel.sizes for kernel in kernels))})
    return next((n for n in candidates if all(k.accepts(n) for k in kernels)), None)


def unify(
    kernels: Sequence[KernelBlocks],
    per_token_bytes: int,
    state_bytes: int,
    *,
    block_size: int,
    floor: int = 1,
    align: int | None = None,
    round_to: int = 1,
) -> HybridBlocks | None:
    """Return the block size whose page holds one state, or None where a kernel refuses it.

    kernels: of the attention layers; the first one gives the granule. per_token_bytes: of one
    attention layer. block_size: the size so far, which only grows. floor: least granule (128 for
    latent caches). align: tokens between checkpoints of states that are kept at block ends, None
    where only the last state is kept. round_to: a multiple that the engine wants in the end: the
    padding grows with it, and a state that fitted exactly stays without.
    """
    if per_token_bytes < 1 or block_size < 1:
        raise InputError("block sizes need at least one byte per token and one token per block")
    granule = max(floor, min(kernels[0].sizes), block_size)
    if align is not None:
        granule = lcm(granule, align)
    wanted = granule * ceil(state_bytes / (granule * per_token_bytes))
    wanted = _round_up(wanted, lcm(*(min(kernel.sizes) for kernel in kernels)))
    chosen = max(block_size, wanted)
    if chosen != block_size and not all(kernel.accepts(chosen) for kernel in kernels):
        return None
    padded = chosen * per_token_bytes > state_bytes > 0
    chosen = _round_up(chosen, round_to)
    page = chosen * per_token_bytes
    return HybridBlocks(
        block_size=chosen,
        page_bytes=page,
        state_bytes=state_bytes,
        padded_page_bytes=page if padded else None,
        mamba_block_size=None if align is None or state_bytes == 0 else chosen,
    )


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
