"""Whether a batch that lies on the processor contradicts itself, before kernels read by it.

Sentences begin with the name of the backend that asks.
"""

from __future__ import annotations

from itertools import pairwise
from numbers import Integral
from typing import NoReturn

import torch
from torch import Tensor

from attnctl.arguments import shown
from attnctl.exits import InputError
from attnctl.runtime import Metadata

FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16})
INTEGERS = frozenset({torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64})
DIMENSIONS = {"query_start_loc": 1, "seq_lens": 1, "block_table": 2, "slot_mapping": 1}
"""Of the tensors of a batch."""


class FittingMetadata(Metadata, frozen=True, kw_only=True):
    """A batch whose tensors fit together by their kinds and shapes, wherever they lie."""


class CheckedMetadata(FittingMetadata, frozen=True, kw_only=True):
    """A batch whose tensors have been read once, and what a call compares with its cache.

    rows: end of the last sequence in the query. longest: context of the longest sequence that has
    queries. first_block, last_block: least and greatest page of the table, 0 and -1 without any.
    last_slot: the greatest slot, -1 without any.
    """

    rows: int
    longest: int
    first_block: int
    last_block: int
    last_slot: int


def refuse(name: str, what: str) -> NoReturn:
    raise InputError(f"{name}: {what}")


def check_tensors(name: str, **given: object) -> None:
    """InputError: one of these is no dense tensor, or a view whose numbers are not in memory."""
    for what, value in given.items():
        if not isinstance(value, Tensor):
            refuse(name, f"{what} must be a tensor; it is {shown(value)}")
        if value.layout is not torch.strided:
            refuse(name, f"{what} must be a dense tensor; it is {value.layout}")
        if value.is_neg():
            refuse(name, f"{what} is a negated view of other numbers; pass {what}.resolve_neg()")


def check_batch(name: str, metadata: Metadata) -> CheckedMetadata:
    """A copy of the batch in the kernels' integer types: what is checked is what they will read.

    InputError: its tensors contradict each other.
    """
    if not isinstance(metadata, Metadata):
        refuse(name, f"metadata must be what build_metadata returns; it is {shown(metadata)}")
    for field, dimensions in DIMENSIONS.items():
        _check_integers(name, field, getattr(metadata, field), dimensions)
    check_bounds(name, metadata)
    check_sequences(name, metadata)
    starts, lens = metadata.query_start_loc.tolist(), metadata.seq_lens.tolist()
    table, slots = metadata.block_table, metadata.slot_mapping
    longest = _check_lengths(name, starts, lens, metadata)
    first, last = (int(x) for x in table.aminmax()) if table.numel() else (0, -1)
    return CheckedMetadata(
        query_start_loc=_owned(metadata.query_start_loc, torch.int32),
        seq_lens=_owned(metadata.seq_lens, torch.int32),
        block_table=_owned(_narrowed(table, first, last), torch.int32),
        slot_mapping=_owned(slots, torch.int64),
        max_query_len=metadata.max_query_len,
        max_seq_len=metadata.max_seq_len,
        rows=starts[-1],
        longest=longest,
        first_block=first,
        last_block=last,
        last_slot=int(slots.max()) if slots.numel() else -1,
    )


def check_bounds(name: str, metadata: Metadata) -> None:
    """InputError: a bound that is no number of tokens."""
    for field in ("max_query_len", "max_seq_len"):
        bound = getattr(metadata, field)
        if not isinstance(bound, Integral) or bound < 0:
            refuse(name, f"{field} must be an integer from 0 on, a bound; it is {bound!r}")


def check_sequences(name: str, metadata: Metadata) -> None:
    """InputError: its tensors are of different numbers of sequences."""
    sequences, starts = metadata.seq_lens.shape[0], metadata.query_start_loc.shape[0]
    if starts != sequences + 1:
        refuse(
            name,
            f"query_start_loc has {starts} entries for {sequences} seq_lens; "
            f"it needs {sequences + 1}",
        )
    rows = metadata.block_table.shape[0]
    if rows != sequences:
        refuse(name, f"block_table has {rows} rows for {sequences} seq_lens; it needs one each")


def _owned(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A dense copy: a program that fills its tensors for the next batch does not change this one's,
    by whose numbers kernels go to bare addresses."""
    return tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)


def _narrowed(table: Tensor, first: int, last: int) -> Tensor:
    """The table within int32. A block beyond that stays one that no cache has."""
    if first < -(1 << 31) or last >= 1 << 31:
        return table.clamp(-1, (1 << 31) - 1)
    return table


def _check_integers(name: str, field: str, tensor: Tensor, dimensions: int) -> None:
    if not isinstance(tensor, Tensor) or tensor.dtype not in INTEGERS:
        refuse(
            name,
            f"{field} must be a tensor of integers; it is {getattr(tensor, 'dtype', type(tensor))}",
        )
    check_tensors(name, **{field: tensor})
    if tensor.dim() != dimensions or not tensor.is_cpu:
        refuse(
            name,
            f"{field} must have {dimensions} dimension{'s'[: dimensions - 1]} and lie on the cpu; "
            f"it is {list(tensor.shape)} on {tensor.device}",
        )


def _check_lengths(name: str, starts: list[int], lens: list[int], metadata: Metadata) -> int:
    """The longest context that is read."""
    check_starts(name, starts)
    longest = most = 0
    for b, length in enumerate(lens):
        queries = starts[b + 1] - starts[b]
        if length < queries or length < 0:
            refuse(
                name,
                f"seq_lens counts the batch's own tokens too; sequence {b} has {queries} query "
                f"tokens and seq_lens[{b}] is {length}, which must be {queries} or more",
            )
        if queries:
            longest, most = max(longest, length), max(most, queries)
    if metadata.max_seq_len < longest:
        refuse(
            name,
            f"max_seq_len must be {longest} or more, the longest context; {metadata.max_seq_len=}",
        )
    if metadata.max_query_len < most:
        refuse(
            name,
            f"max_query_len must be {most} or more, the most queries; {metadata.max_query_len=}",
        )
    return longest


def check_starts(name: str, starts: list[int]) -> None:
    """InputError: sequences that begin before the first token, or end before they begin."""
    if starts[0] < 0:
        refuse(name, f"query_start_loc must not start below 0; it starts at {starts[0]}")
    for b, (first, last) in enumerate(pairwise(starts)):
        if last < first:
            refuse(
                name, f"query_start_loc must not decrease; entry {b + 1} is {last} after {first}"
            )


def check_tokens(name: str, rows: int, tokens: int) -> None:
    """InputError: sequences that go on beyond the query's tokens."""
    if rows > tokens:
        refuse(name, f"query has {tokens} rows; query_start_loc ends at {rows} and needs as many")


def check_pages(name: str, metadata: CheckedMetadata, blocks: int, page: int) -> None:
    """InputError: the block table is too narrow for its contexts, or names no block of the cache.

    Entries beyond a sequence's context are not read and may hold anything.
    """
    table = metadata.block_table
    if metadata.longest > table.shape[1] * page:
        refuse(
            name,
            f"block_table has {table.shape[1]} pages of {page} a sequence; a context of "
            f"{metadata.longest} tokens needs {-(-metadata.longest // page)}",
        )
    if metadata.first_block >= 0 and metadata.last_block < blocks:
        return
    queries = metadata.query_start_loc.diff()
    read = torch.where(queries > 0, metadata.seq_lens, 0)[:, None]
    read = torch.arange(table.shape[1], device=table.device)[None, :] * page < read
    wrong = table[read & ((table < 0) | (table >= blocks))]
    if wrong.numel():
        refuse(
            name, f"block_table names block {int(wrong[0])}; the cache has blocks 0 to {blocks - 1}"
        )
