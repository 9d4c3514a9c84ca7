"""Work items of a batch: which rows each has, and which positions each row sees."""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata

SHORT, LONG = 16, 128
"""Rows of an item: where every sequence has few query tokens, and where some have many. Both are
block heights of flex_attention's GPU kernels."""

FAR = 2**30


class Items(msgspec.Struct, frozen=True, kw_only=True):
    """W items of Q rows. Rows and items beyond the batch see nothing.

    sequence: [W] int64. position, low, high: [W, Q] int32, the row's own position and the interval
    that it sees, past-the-end. token: [W, Q] int64, its row of the query, 0 where it has none.
    live: [W, Q] bool. item, row: [T] int64, where each query token went; written: [T] bool, whether
    it belongs to a sequence.
    """

    sequence: Tensor
    position: Tensor
    low: Tensor
    high: Tensor
    token: Tensor
    live: Tensor
    item: Tensor
    row: Tensor
    written: Tensor


def rows_of(max_query_len: int) -> int:
    return SHORT if max_query_len <= SHORT else LONG


def items(metadata: Metadata, params: Paged, tokens: int) -> Items:
    """The items of a batch, found without waiting for the device: their number is a bound."""
    rows = rows_of(metadata.max_query_len)
    starts = metadata.query_start_loc.long()
    lengths = metadata.seq_lens.long()
    queries = starts.diff()
    ends = ((queries + rows - 1) // rows).cumsum(0)
    sequence, first = _cut(queries, ends, _bound(tokens, queries.shape[0], rows, metadata), rows)
    offset = first[:, None] + torch.arange(rows, device=starts.device)
    live = (offset < queries[sequence][:, None]) & (first[:, None] >= 0)
    token = torch.where(live, starts[sequence][:, None] + offset, 0)
    position = (lengths - queries)[sequence][:, None] + offset
    low, high = _seen(position, lengths[sequence][:, None], sequence, params)
    none = torch.zeros((), dtype=torch.int32, device=starts.device)
    item, row, written = _places(starts, queries, ends, tokens, rows)
    return Items(
        sequence=sequence,
        position=position.int(),
        low=torch.where(live, low.int(), none),
        high=torch.where(live, high.int(), none),
        token=token,
        live=live,
        item=item,
        row=row,
        written=written,
    )


def _bound(tokens: int, sequences: int, rows: int, metadata: Metadata) -> int:
    # at least 2, so that a batch of one does not compile a kernel of its own
    if metadata.max_query_len <= rows:
        return max(2, sequences)
    return max(2, tokens // rows + sequences)


def _cut(queries: Tensor, ends: Tensor, count: int, rows: int) -> tuple[Tensor, Tensor]:
    """Each item's sequence and first row in it; the first row is negative past the last item."""
    index = torch.arange(count, device=queries.device)
    found = torch.searchsorted(ends, index, right=True)
    sequence = found.clamp(max=queries.shape[0] - 1)
    before = (ends - (queries + rows - 1) // rows)[sequence]
    beyond = found >= queries.shape[0]
    return sequence, torch.where(beyond, -FAR, (index - before) * rows)


def _seen(
    position: Tensor, length: Tensor, sequence: Tensor, params: Paged
) -> tuple[Tensor, Tensor]:
    """The interval of positions that a token at each position sees."""
    low, high = torch.zeros_like(position), length.expand_as(position)
    if params.causal:
        high = position + 1
    if params.window is not None:
        low = (position - params.window + 1).clamp(min=0)
    if params.window_right is not None:
        high = torch.minimum(high, position + params.window_right + 1)
    if params.chunk is not None:
        begin = position // params.chunk * params.chunk
        low, high = torch.maximum(low, begin), torch.minimum(high, begin + params.chunk)
    if params.prefix_ranges is not None and params.prefix_ranges.shape[1]:
        ranges = params.prefix_ranges[sequence].long()
        begin, end = ranges[:, None, :, 0], ranges[:, None, :, 1]
        inside = (position[..., None] >= begin) & (position[..., None] < end)
        low = torch.minimum(low, torch.where(inside, begin, FAR).amin(-1).clamp(min=0))
        high = torch.maximum(high, torch.where(inside, end, 0).amax(-1))
    return low, torch.minimum(high, length)


def _places(
    starts: Tensor, queries: Tensor, ends: Tensor, tokens: int, rows: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Where each query token's row lies, and whether it belongs to a sequence at all."""
    index = torch.arange(tokens, device=starts.device)
    found = torch.searchsorted(starts[1:].contiguous(), index, right=True)
    sequence = found.clamp(max=queries.shape[0] - 1)
    offset = index - starts[sequence]
    written = found < queries.shape[0]
    first = (ends - (queries + rows - 1) // rows)[sequence]
    item = torch.where(written, first + offset // rows, 0)
    return item, torch.where(written, offset % rows, 0), written
