"""Chunked-local attention for kernels that have no chunks: a sequence of their own for each chunk.

A query token of a chunked layer sees its own chunk and no other, so the tokens of one chunk are a
batch entry whose context begins where the chunk does. The cache is not touched: an entry's block
table is a piece of its sequence's, which is why a chunk must be a whole number of pages.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata


def unchunked(
    name: str, metadata: Metadata, params: Paged, tokens: int, size: int
) -> tuple[Metadata, Paged]:
    """The same batch and mask without chunks. InputError: a chunk is no whole number of pages.

    The number of entries is a bound that the host knows; those past the batch are empty.
    """
    chunk = params.chunk
    if chunk is None:
        return metadata, params
    if chunk % size:
        raise InputError(
            f"{name}: a chunk of {chunk} tokens is no whole number of {size}-token pages; take a "
            "block size that divides it"
        )
    longest = metadata.max_seq_len
    if longest <= chunk:
        return metadata, msgspec.structs.replace(params, chunk=None)
    return _cut(metadata, chunk, tokens, size), msgspec.structs.replace(params, chunk=None)


def _cut(metadata: Metadata, chunk: int, tokens: int, size: int) -> Metadata:
    starts, lengths = metadata.query_start_loc.long(), metadata.seq_lens.long()
    sequences = lengths.shape[0]
    queries = starts.diff()
    first = (lengths - queries) // chunk
    counts = torch.where(queries > 0, (lengths - 1) // chunk - first + 1, 0)
    ends = counts.cumsum(0)
    bound = sequences + min(tokens, sequences + tokens // chunk)
    index = torch.arange(bound, device=starts.device)
    found = torch.searchsorted(ends, index, right=True)
    live = found < sequences
    owner = found.clamp(max=sequences - 1)
    number = first[owner] + index - (ends - counts)[owner]
    begin, length = number * chunk, lengths[owner]
    stop = torch.minimum(begin + chunk, length)
    taken = torch.where(live, stop - torch.maximum(begin, length - queries[owner]), 0)
    table = metadata.block_table
    page = begin[:, None] // size + torch.arange(chunk // size, device=starts.device)
    pages = table[owner].gather(1, page.clamp(0, table.shape[1] - 1))
    return Metadata(
        query_start_loc=_starts(taken, starts),
        seq_lens=torch.where(live, stop - begin, 0).to(metadata.seq_lens.dtype),
        block_table=pages,
        slot_mapping=metadata.slot_mapping,
        max_query_len=min(metadata.max_query_len, chunk),
        max_seq_len=chunk,
    )


def _starts(taken: Tensor, starts: Tensor) -> Tensor:
    return torch.cat([starts[:1], starts[:1] + taken.cumsum(0)]).int()
