"""A batch, a cache and lists of slots in the forms that libraries of latent attention ask for.

Nothing here waits for a device, and nothing copies a cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.runtime import Metadata


def live_rows(metadata: Metadata, tokens: int) -> Tensor:
    """[T] bool: which query tokens belong to a sequence."""
    starts = metadata.query_start_loc
    return torch.arange(tokens, device=starts.device) < starts[-1]


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


def more_places(slots: Tensor, multiple: int) -> Tensor:
    """Lists [T, K] filled up with -1 to a multiple of places, at least one such."""
    missing = max(multiple, -(-slots.shape[1] // multiple) * multiple) - slots.shape[1]
    return slots if not missing else torch.nn.functional.pad(slots, (0, missing), value=-1)
