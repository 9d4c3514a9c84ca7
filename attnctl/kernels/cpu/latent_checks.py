"""What the kernels of latent attention read by bare addresses is looked at first: refusals."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.runtime import Metadata


def refuse_batch(status: int, metadata: Metadata, tokens: int, cache: Tensor) -> NoReturn:
    """InputError: what `refusal` of latent.cpp and indexer.cpp found, 4 * sequence + reason."""
    b, reason = divmod(status, 4)
    first, last = metadata.query_start_loc[b : b + 2].tolist()
    length, pages = int(metadata.seq_lens[b]), metadata.block_table.shape[1]
    blocks, page = cache.shape[:2]
    if reason == 1:
        raise InputError(
            f"query_start_loc gives sequence {b} the rows {first} to {last}; the query has "
            f"{tokens} rows, and starts must not decrease"
        )
    if reason == 2:
        raise InputError(
            f"seq_lens[{b}] is {length}; it must count the sequence's {last - first} query tokens "
            f"too and fit block_table's {pages} pages of {page}"
        )
    row = metadata.block_table[b, : -(-length // page)]
    stray = int(row[(row < 0) | (row >= blocks)][0])
    raise InputError(
        f"block_table names block {stray} for sequence {b}; the cache has {blocks} blocks"
    )


def dense(tensor: Tensor) -> Tensor:
    """The tensor, copied where its last dimension has gaps."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def int32(tensor: Tensor) -> Tensor:
    return dense(tensor.to(torch.int32))
