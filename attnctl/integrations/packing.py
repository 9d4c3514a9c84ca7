"""From transformers' padded [B, H, T, D] to packed rows and blocks, and back."""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.plans.opening import LayerPlan


class PackedRows(msgspec.Struct, frozen=True):
    """Which tokens of a padded batch count. mask: [B, S] bool, None where all of them do.

    query_start_loc: [B + 1] int32. seq_lens: [B] int32. queries_kept: [B, T] bool or None.
    """

    query_start_loc: Tensor
    seq_lens: Tensor
    max_query_len: int
    max_seq_len: int
    tokens: int
    mask: Tensor | None
    queries_kept: Tensor | None

    @property
    def whole(self) -> bool:
        return self.mask is None

    def queries(self, query: Tensor) -> Tensor:
        """[T, H, D] of those that count from [B, H, T, D]."""
        rows = query.transpose(1, 2)
        return rows.flatten(0, 1) if self.queries_kept is None else rows[self.queries_kept]

    def keys(self, key: Tensor) -> Tensor:
        """[T, Hk, D] of those that count from [B, Hk, S, D]."""
        rows = key.transpose(1, 2)
        return rows.flatten(0, 1) if self.mask is None else rows[:, : self.mask.shape[1]][self.mask]

    def padded(self, rows: Tensor, query: Tensor) -> Tensor:
        """[B, T, H, Dv] from packed rows; 0 where padding is."""
        batch, _, tokens, _ = query.shape
        if self.queries_kept is None:
            return rows.unflatten(0, (batch, tokens))
        out = rows.new_zeros(batch, tokens, *rows.shape[1:])
        out[self.queries_kept] = rows
        return out


def packed_rows(
    query: Tensor, key: Tensor, mask: Tensor | None, windowed: bool = False
) -> PackedRows:
    """The rows of a batch whose queries are its last tokens. InputError: padding in the middle.

    windowed: distances matter, so that padding may stand before and behind a sequence only.
    """
    batch, _, tokens, _ = query.shape
    device = query.device
    if mask is None:
        length = key.shape[2]
        return PackedRows(
            torch.arange(0, (batch + 1) * tokens, tokens, dtype=torch.int32, device=device),
            torch.full((batch,), length, dtype=torch.int32, device=device),
            tokens,
            length,
            batch * tokens,
            None,
            None,
        )
    if mask.shape[0] != batch:
        raise InputError(
            f"attnctl: the attention mask has {mask.shape[0]} rows for {batch} sequences"
        )
    if windowed and bool((mask.int().diff(dim=1) != 0).sum(dim=1).gt(2).any()):
        raise InputError("attnctl: padding between the tokens of a sequence; put it at its ends")
    kept = mask[:, -tokens:]
    lengths, counts = mask.sum(dim=1, dtype=torch.int32), kept.sum(dim=1, dtype=torch.int32)
    starts = torch.zeros(batch + 1, dtype=torch.int32, device=device)
    starts[1:] = counts.cumsum(0)
    most, longest, total = (int(x) for x in (counts.max(), lengths.max(), starts[-1]))
    return PackedRows(starts, lengths, most, longest, total, mask, kept)


class Packed(msgspec.Struct, frozen=True):
    """Keys and values in blocks: a cache [N, P, ...] and each sequence's blocks [B, pages]."""

    cache: Tensor
    block_table: Tensor


def room(layer: LayerPlan, key: Tensor, rows: PackedRows) -> tuple[Packed, Tensor, Tensor]:
    """Empty blocks for a batch, the slot of each of its tokens, and where each sequence starts."""
    page, batch = layer.block_size or 1, key.shape[0]
    blocks = max(1, -(-rows.max_seq_len // page))
    cache = layer.new_cache(batch * blocks, device=key.device, dtype=key.dtype)
    first = torch.arange(batch, device=key.device) * blocks * page
    position = torch.arange(rows.max_seq_len, device=key.device)
    slots = (first[:, None] + position)[position < rows.seq_lens[:, None]]
    starts = torch.zeros(batch + 1, dtype=torch.int32, device=key.device)
    starts[1:] = rows.seq_lens.cumsum(0)
    return Packed(cache, _table(batch, blocks, key.device)), slots, starts


def packed_view(key: Tensor, value: Tensor, page: int) -> Packed | None:
    """The blocks in which these keys and values lie; None where they do not lie in blocks.

    key: [B, Hk, S, D], value: [B, Hk, S, Dv], each token's heads one after another with K beside V:
    what PagedLayer returns, and whatever else is laid out so.
    """
    batch, heads, length, width = key.shape
    both = width + value.shape[3]
    stride = key.stride()
    beside = value.data_ptr() - key.data_ptr() == width * key.element_size()
    if not beside or value.stride() != stride or stride[1:] != (both, heads * both, 1):
        return None
    block = page * heads * both
    blocks = -(-length // page) if batch == 1 else stride[0] // block
    if batch > 1 and (stride[0] % block or blocks * page < length):
        return None
    end = key.storage_offset() + batch * blocks * block
    if length == 0 or end * key.element_size() > key.untyped_storage().nbytes():
        return None
    cache = key.as_strided(
        (batch * blocks, page, heads, both),
        (block, heads * both, both, 1),
        key.storage_offset(),
    )
    return Packed(cache, _table(batch, blocks, key.device))


def _table(batch: int, blocks: int, device: torch.device) -> Tensor:
    return torch.arange(batch * blocks, dtype=torch.int32, device=device).view(batch, blocks)
