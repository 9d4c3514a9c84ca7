"""A batch, a cache and lists of slots in the forms that libraries of latent attention ask for.

Nothing here waits for a device, and nothing copies a cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.runtime import Metadata


def name_slots(slots: Tensor, total: int, multiple: int = 1) -> tuple[Tensor, Tensor]:
    """Lists [T, K'] int32 with -1 for what is no row of a cache of `total`, and how many are.

    slots: [T, K] int32. K': at least K, a multiple of `multiple`, at least one such; what is
    filled up is -1. The count is [T] int32.
    """
    width = max(multiple, -(-slots.shape[1] // multiple) * multiple)
    fused = _fused(slots)
    if fused is not None:
        named: tuple[Tensor, Tensor] = fused.name_slots(slots, total, width)
        return named
    valid = (slots >= 0) & (slots < total)
    filled = torch.nn.functional.pad(
        torch.where(valid, slots, -1), (0, width - slots.shape[1]), value=-1
    )
    return filled, valid.sum(1, dtype=torch.int32)


def settle(
    found: Tensor,
    top: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
    starts: Tensor,
    count: Tensor | None,
    factor: float,
) -> None:
    """Puts a library's result in `out` [T, H, L] and, where given, `lse` [T, H].

    Rows of no sequence (starts: [B + 1]) keep what they held, rows that saw nothing (count [T] is
    0) get 0 and -inf. factor: what the output is multiplied with.
    """
    fused = _fused(out)
    if fused is not None:
        fused.settle(found, top, out, lse, starts, count, factor)
        return
    live = torch.arange(out.shape[0], device=out.device) < starts[-1]
    seen = live if count is None else count > 0
    result = torch.where(seen[:, None, None], found, torch.zeros_like(found))
    result = result if factor == 1.0 else result * factor
    torch.where(live[:, None, None], result.to(out.dtype), out, out=out)
    if lse is not None:
        assert top is not None
        top = torch.where(seen[:, None], top, torch.full_like(top, -torch.inf))
        torch.where(live[:, None], top, lse, out=lse)


def _fused(tensor: Tensor) -> Any:
    """The same by Triton, in a launch each; None on the processor and without Triton."""
    if tensor.is_cpu:
        return None
    from importlib import import_module

    try:
        return import_module("attnctl.kernels.triton.latent.settle_rows")
    except ImportError:
        return None


def each_token(metadata: Metadata, tokens: int) -> Metadata:
    """Every query token as a sequence of its own, as long as what it sees, without waiting.

    Causality is then a matter of lengths, so that kernels that decode one token a sequence, or as
    many of each, take any batch. A token of no sequence has length 0.
    """
    starts, table = metadata.query_start_loc, metadata.block_table
    row = torch.arange(tokens, device=starts.device)
    owner = torch.searchsorted(starts.long(), row, right=True) - 1
    live = (row < starts[-1]) & (owner >= 0)
    owner = owner.clamp(0, table.shape[0] - 1)
    seen = metadata.seq_lens[owner] - (starts[1:][owner] - 1 - row)
    return Metadata(
        query_start_loc=torch.arange(tokens + 1, dtype=torch.int32, device=starts.device),
        seq_lens=torch.where(live, seen, 0).to(torch.int32),
        block_table=table[owner],
        slot_mapping=metadata.slot_mapping,
        max_query_len=1,
        max_seq_len=metadata.max_seq_len,
    )


def split_pages(
    name: str, cache: Tensor, table: Tensor, sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Cache and block table with pages of the largest of these sizes that divides the cache's.

    InputError: none does, or pages that would be cut do not lie one after another.
    """
    page = cache.shape[1]
    if page in sizes:
        return cache, table
    size = max((one for one in sizes if page % one == 0), default=0)
    if not size:
        known = " or ".join(map(str, sizes))
        raise InputError(f"{name}: the library takes pages of {known} tokens, found {page}")
    rows = one_stride(name, cache)
    parts = page // size
    piece = torch.arange(parts, dtype=table.dtype, device=table.device)
    return rows.unflatten(0, (-1, size)), (table[:, :, None] * parts + piece).flatten(1)


def one_stride(name: str, cache: Tensor) -> Tensor:
    """The rows of a cache [N, P, C] as [N * P, C], no copy.

    InputError: its pages do not lie one after another.
    """
    blocks, page, _ = cache.shape
    if blocks > 1 and cache.stride(0) != page * cache.stride(1):
        raise InputError(
            f"{name}: the library wants tokens one stride apart, pages too; take the cache as "
            "cache_shape gives it, (N, P, C), contiguous"
        )
    return cache.flatten(0, 1)


def more_heads(query: Tensor, heads: int) -> Tensor:
    """The query with zeros in heads behind its own, where it has fewer than `heads`."""
    missing = heads - query.shape[-2]
    return query if missing <= 0 else torch.nn.functional.pad(query, (0, 0, 0, missing))


def least(counts: tuple[int, ...], heads: int) -> int | None:
    """The least of these numbers of heads that has room for `heads`; None: too many."""
    return min((count for count in counts if count >= heads), default=None)
