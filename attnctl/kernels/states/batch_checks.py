"""Whether a batch of sequences with states contradicts itself, before kernels read by it.

Types, shapes, dtypes and devices are checked everywhere; what the tensors hold only where they lie
on the processor, since reading them would wait for any other device.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import sub
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from attnctl.arguments import shown
from attnctl.kernels.batch_checks import INTEGERS, check_starts, check_tensors, refuse
from attnctl.kernels.states.checks import STRIDED, refuse_count
from attnctl.runtime import StateMetadata

FLAGS = INTEGERS | {torch.bool}
WIDEST = (1 << 31) - 1
"""Of int32, in which the processor's kernels count tokens and slots."""


def check_fields(name: str, op: str, metadata: StateMetadata, device: Any = None) -> None:
    """InputError: tensors of other kinds, or that do not fit together by their shapes.

    device: where they must lie; None: wherever query_start_loc does.
    """
    if not isinstance(metadata, StateMetadata):
        refuse(name, f"metadata must be what build_metadata returns; it is {shown(metadata)}")
    starts = metadata.query_start_loc
    _check_tensor(name, "query_start_loc", starts, 1, INTEGERS)
    device, rows = device or starts.device, starts.shape[0] - 1
    if rows < 0:
        refuse(name, "query_start_loc has no entry; it needs one more than there are sequences")
    tensors = [("query_start_loc", starts)]
    for what, tensor, dimensions, dtypes in (
        ("state_indices", metadata.state_indices, 2, INTEGERS),
        ("has_initial_state", metadata.has_initial_state, 1, FLAGS),
        ("num_accepted", metadata.num_accepted, 1, INTEGERS),
        ("speculative", metadata.speculative, 1, FLAGS),
    ):
        if tensor is None and what in ("num_accepted", "speculative"):
            continue
        if _check_tensor(name, what, tensor, dimensions, dtypes)[0] != rows:
            check_rows(name, what, tensor, rows)
        tensors.append((what, tensor))
    for what, tensor in tensors:
        if tensor.device != device:
            refuse(
                name,
                f"all tensors of a call must lie on one device; {what} is on {tensor.device}, "
                f"others on {device}",
            )
    refuse_count(name, "max_query_len", metadata.max_query_len)
    refuse_count(name, "num_spec", metadata.num_spec)
    columns, drafts = metadata.state_indices.shape[1], metadata.num_spec
    # a convolution keeps its drafts' columns inside one slot
    if columns <= (0 if op == "short_conv" else drafts):
        refuse(
            name,
            f"{drafts} drafts need {1 + drafts} columns of state_indices; it has {columns}",
        )


def check_rows(name: str, what: str, tensor: Tensor, rows: int) -> None:
    """InputError: a tensor without a row for each sequence."""
    if tensor.shape[0] != rows:
        refuse(
            name,
            f"{what} has {tensor.shape[0]} rows and query_start_loc {rows}; give one of each per "
            "sequence",
        )


def check_kind(name: str, what: str, tensor: Any, dtypes: frozenset[torch.dtype]) -> None:
    """InputError: no tensor, or one of other numbers."""
    if not isinstance(tensor, Tensor) or tensor.dtype not in dtypes:
        check_tensors(name, **{what: tensor})
        wanted = "integers" if dtypes is INTEGERS else "booleans"
        refuse(name, f"{what} must be a tensor of {wanted}; it is {tensor.dtype}")
    if tensor.layout is not STRIDED:
        check_tensors(name, **{what: tensor})


def _check_tensor(
    name: str, what: str, tensor: Any, dimensions: int, dtypes: frozenset[torch.dtype]
) -> torch.Size:
    """Its shape. InputError: another kind of tensor, or of other dimensions."""
    if not isinstance(tensor, Tensor) or tensor.dtype not in dtypes or tensor.layout is not STRIDED:
        check_kind(name, what, tensor, dtypes)
    shape = tensor.shape
    if len(shape) != dimensions:
        refuse(
            name,
            f"{what} must have {dimensions} dimension{'s'[: dimensions - 1]}; it is {list(shape)}",
        )
    return shape


def check_values(
    name: str, op: str, metadata: StateMetadata, tokens: int = WIDEST, slots: int = WIDEST
) -> None:
    """InputError: a batch on the processor whose numbers lead beyond its tensors, or two sequences
    whose states lie in one slot.

    tokens, slots: how many there are, where that is known. Rows of padding may hold anything.
    """
    starts, named = metadata.query_start_loc.tolist(), metadata.state_indices.tolist()
    if not _surely_right(op, metadata, starts, named, tokens, slots):
        _check_each_row(name, op, metadata, starts, named, tokens, slots)


def _surely_right(
    op: str,
    metadata: StateMetadata,
    starts: list[int],
    named: list[list[int]],
    tokens: int,
    slots: int,
) -> bool:
    """Whether nothing is wrong even if every row counts, with every column that it has.

    Most batches are so, and this takes a quarter of the time that a look at each row does.
    """
    lengths = [*map(sub, starts[1:], starts)]
    places = [slot for row in named for slot in row if slot >= 0]
    if not places or min(lengths) < 0 or starts[0] < 0 or starts[-1] > tokens:
        return False
    longest = max(lengths)
    if longest > metadata.max_query_len or max(places) >= slots or len({*places}) < len(places):
        return False
    if metadata.num_accepted is None and metadata.speculative is None:
        return True
    accepted = [1] if metadata.num_accepted is None else metadata.num_accepted.tolist()
    most = _most_tokens(op, metadata)
    return min(accepted) >= 1 and max(accepted) <= most and (op != "short_conv" or longest <= most)


def _check_each_row(
    name: str,
    op: str,
    metadata: StateMetadata,
    starts: list[int],
    named: list[list[int]],
    tokens: int,
    slots: int,
) -> None:
    check_starts(name, starts)
    if starts[-1] > tokens:
        refuse(name, f"query_start_loc ends at {starts[-1]}; the call has {tokens} tokens")
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    longest = 0
    for row in _rows(name, op, metadata, starts, named):
        for slot in row.named:
            if slot >= slots:
                refuse(
                    name,
                    f"state_indices of row {row.place} name slot {slot}, which lies beyond the "
                    f"pool of {slots} slots",
                )
        for slot in row.written:
            if slot >= 0 and written.setdefault(slot, row.place) != row.place:
                _refuse_shared(name, slot, written[slot], row.place)
        read[row.place] = row.source
        longest = max(longest, row.tokens)
    for place, slot in read.items():
        if written.get(slot, place) != place:
            _refuse_shared(name, slot, written[slot], place)
    if metadata.max_query_len < longest:
        refuse(
            name,
            f"max_query_len must be {longest} or more, the most tokens of a sequence; it is "
            f"{metadata.max_query_len}",
        )


def _most_tokens(op: str, metadata: StateMetadata) -> int:
    """Tokens of a row whose states can be kept. A convolution keeps its drafts' columns inside one
    slot."""
    return 1 + metadata.num_spec if op == "short_conv" else metadata.state_indices.shape[1]


class _Row(NamedTuple):
    """A sequence with tokens: slots that it names and writes, and the one that it starts from."""

    place: int
    tokens: int
    named: list[int]
    written: list[int]
    source: int


def _rows(
    name: str, op: str, metadata: StateMetadata, starts: list[int], slots: list[list[int]]
) -> Iterator[_Row]:
    known = metadata.has_initial_state.tolist()
    accepted = None if metadata.num_accepted is None else metadata.num_accepted.tolist()
    verified = None if metadata.speculative is None else metadata.speculative.tolist()
    conv, most = op == "short_conv", _most_tokens(op, metadata)
    for b, named in enumerate(slots):
        count = starts[b + 1] - starts[b]
        if not count or named[0] < 0:
            continue
        stayed = accepted[b] if accepted is not None and known[b] else 1
        if not 1 <= stayed <= most:
            refuse(name, f"num_accepted of row {b} must lie between 1 and {most}; it is {stayed}")
        keeps_all = verified is not None and bool(verified[b])
        if conv and keeps_all and count > most:
            refuse(
                name,
                f"row {b} is under verification with {count} tokens; a num_spec of "
                f"{metadata.num_spec} lets it have {most}",
            )
        named = named[:1] if conv else named
        source = named[0 if conv else stayed - 1] if known[b] else -1
        yield _Row(b, count, named, named[:count] if keeps_all else named[:1], source)


def _refuse_shared(name: str, slot: int, first: int, second: int) -> NoReturn:
    refuse(
        name,
        f"state_indices name slot {slot} for the rows {first} and {second}, and a slot holds the "
        "state of one sequence; give each its own",
    )
