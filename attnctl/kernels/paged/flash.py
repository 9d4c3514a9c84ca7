"""FlashAttention 2, 3 and 4 behind one call, whichever package brings them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.exits import AbsentError, InputError
from attnctl.kernels.batch_checks import FittingMetadata
from attnctl.kernels.libraries import MISSES, Load, Refusals
from attnctl.kernels.paged.packed_cache import per_head
from attnctl.ops.paged import Paged
from attnctl.requirements.flash_versions import FA2_PAGE
from attnctl.runtime import Metadata

OWN_MODULES = {2: "flash_attn", 3: "flash_attn_interface", 4: "flash_attn.cute"}
CARRIER_MODULE = "vllm.vllm_flash_attn"


class Flash(msgspec.Struct, frozen=True):
    """A version and the function that runs it. carried: it is vLLM's function for all versions."""

    version: int
    function: Callable[..., Any]
    carried: bool


class FlashMetadata(FittingMetadata, frozen=True, kw_only=True):
    """context_start_loc: [B + 1] int32, where FA2's own package wants the lengths summed up."""

    context_start_loc: Tensor


def find(name: str, versions: Iterable[int], load: Load, sinks: bool = False) -> Flash:
    """The first of these versions that can be imported.

    sinks: the layer has them, which FA3 takes as vLLM builds it alone. InputError: none, with every
    reason; AbsentError where each is that it is not installed.
    """
    refusals = Refusals(name, "FlashAttention")
    for version in versions:
        for module, carried in ((OWN_MODULES[version], False), (CARRIER_MODULE, True)):
            if sinks and version == 3 and not carried:
                refusals.unfit(f"FA3: {module}: it has no argument for sinks, vLLM's build has")
                continue
            try:
                flash = _open(load(module), version, carried)
            except MISSES as error:
                refusals.failed(module, error, f"FA{version}: ")
                continue
            if flash is not None:
                return flash
            refusals.unfit(f"FA{version}: {module}: this build has no FA{version} for this device")
    raise refusals.error()


def _open(module: Any, version: int, carried: bool) -> Flash | None:
    if carried and not module.is_fa_version_supported(version):
        return None
    cached = version == 3 and not carried
    function = module.flash_attn_with_kvcache if cached else module.flash_attn_varlen_func
    return Flash(version, function, carried)


def attend(
    name: str,
    flash: Flash,
    query: Tensor,
    caches: tuple[Tensor, Tensor],
    metadata: Metadata,
    params: Paged,
    out: Tensor | None,
) -> Tensor:
    """[T, H, Dv]: `out` where the function writes into it, a tensor of its own elsewhere."""
    sides = window(params)
    key, value = caches
    common = {
        "softmax_scale": params.scale,
        "causal": params.causal,
        "softcap": params.softcap or 0.0,
    }
    if flash.carried:
        return _carried(flash, query, key, value, metadata, params, out, sides, common)
    if params.sinks is not None and flash.version != 4:
        raise AbsentError(
            f"{name}: sinks need FA4, or FA3 as vLLM builds it, which is not installed"
        )
    if flash.version == 2:
        return _own2(name, flash, query, key, value, metadata, params, sides, common)
    if flash.version == 3:
        return _own3(flash, query, key, value, metadata, params, sides, common)
    found = flash.function(
        query,
        key,
        value,
        cu_seqlens_q=metadata.query_start_loc,
        max_seqlen_q=metadata.max_query_len,
        max_seqlen_k=metadata.max_seq_len,
        seqused_k=metadata.seq_lens,
        page_table=metadata.block_table,
        window_size=tuple(None if side < 0 else side for side in sides),
        learnable_sink=per_head(params.sinks),
        **common,
    )
    return found[0] if isinstance(found, tuple) else found


def window(params: Paged) -> tuple[int, int]:
    """FlashAttention's (left, right): tokens beside the query's own, -1 for no bound."""
    left = -1 if params.window is None else params.window - 1
    right = -1 if params.window_right is None else params.window_right
    if params.causal:
        right = 0 if left >= 0 else -1
    return left, right


def _carried(
    flash: Flash,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    metadata: Metadata,
    params: Paged,
    out: Tensor | None,
    sides: tuple[int, int],
    common: dict[str, Any],
) -> Tensor:
    scales = _scales(key, metadata, params)
    # FA3 takes them in bfloat16 alone
    sinks = per_head(params.sinks, torch.bfloat16 if flash.version == 3 else torch.float32)
    if scales and flash.version == 3:
        query = query.to(key.dtype)
    found: Tensor = flash.function(
        q=query,
        k=key,
        v=value,
        max_seqlen_q=metadata.max_query_len,
        cu_seqlens_q=metadata.query_start_loc,
        max_seqlen_k=metadata.max_seq_len,
        seqused_k=metadata.seq_lens,
        window_size=list(sides),
        alibi_slopes=per_head(params.alibi_slopes),
        block_table=metadata.block_table,
        out=out,
        fa_version=flash.version,
        s_aux=sinks,
        **scales,
        **common,
    )
    return found


def _own2(
    name: str,
    flash: Flash,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    metadata: Metadata,
    params: Paged,
    sides: tuple[int, int],
    common: dict[str, Any],
) -> Tensor:
    if key.shape[1] % FA2_PAGE:
        raise InputError(
            f"{name}: the flash-attn package takes pages of {FA2_PAGE} tokens and multiples, found "
            f"{key.shape[1]}; take --block-size {FA2_PAGE}, or install vLLM, whose FA2 takes 16"
        )
    sums = getattr(metadata, "context_start_loc", None)
    found: Tensor = flash.function(
        query,
        key,
        value,
        cu_seqlens_q=metadata.query_start_loc,
        cu_seqlens_k=summed(metadata.seq_lens) if sums is None else sums,
        max_seqlen_q=metadata.max_query_len,
        max_seqlen_k=metadata.max_seq_len,
        window_size=sides,
        alibi_slopes=per_head(params.alibi_slopes),
        block_table=metadata.block_table,
        **common,
    )
    return found


def _own3(
    flash: Flash,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    metadata: Metadata,
    params: Paged,
    sides: tuple[int, int],
    common: dict[str, Any],
) -> Tensor:
    scales = _scales(key, metadata, params)
    found: Tensor = flash.function(
        query.to(key.dtype) if scales else query,
        key,
        value,
        cache_seqlens=metadata.seq_lens,
        page_table=metadata.block_table,
        cu_seqlens_q=metadata.query_start_loc,
        max_seqlen_q=metadata.max_query_len,
        window_size=sides,
        **scales,
        **common,
    )
    return found


def _scales(key: Tensor, metadata: Metadata, params: Paged) -> dict[str, Tensor]:
    """Descaling factors of an FP8 cache, [B, Hk] float32; {} of any other."""
    if key.element_size() > 1:
        return {}
    shape = (metadata.seq_lens.shape[0], key.shape[2])
    factors = {"k_descale": params.k_scale, "v_descale": params.v_scale}
    return {
        name: torch.full(shape, float(factor), dtype=torch.float32, device=key.device)
        for name, factor in factors.items()
    }


def summed(lengths: Tensor) -> Tensor:
    """[B + 1] int32: where each sequence begins when all are packed."""
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
