"""What the state-space kernels share: a row's tokens and slots, and the activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from attnctl.exits import InputError
from attnctl.runtime import StateMetadata


@triton.jit
def read_row(STARTS, SLOTS, KNOWN, ACCEPTED, row, stride_slots):
    """First token, number of tokens, slot of column 0, slot of the initial state, whether it is."""
    first = tl.load(STARTS + row)
    count = tl.load(STARTS + row + 1) - first
    slots = SLOTS + row.to(tl.int64) * stride_slots
    slot = tl.load(slots).to(tl.int64)
    source = slot
    if ACCEPTED is not None:
        source = tl.load(slots + tl.load(ACCEPTED + row) - 1).to(tl.int64)
    known = (tl.load(KNOWN + row) != 0) & (source >= 0)
    return first.to(tl.int64), count, slot, source, known


@triton.jit
def keeps_all(VERIFIED, row):
    """1 where the state after every token is kept, in a column each."""
    kept = 0
    if VERIFIED is not None:
        kept = tl.load(VERIFIED + row).to(tl.int32)
    return kept


@triton.jit
def chunk_slot(first, row, CHUNK: tl.constexpr):
    """Where the row's first chunk lies among all chunks: tokens // CHUNK + rows are enough."""
    return first // CHUNK + row


@triton.jit
def chunk_of_row(STARTS, SLOTS, VERIFIED, stride_slots, CHUNK: tl.constexpr):
    """First token, number of tokens and place of chunk program_id(1) of row program_id(2).

    No tokens where the row ends before it, is padding or is under verification.
    """
    row = tl.program_id(2)
    begin = tl.program_id(1) * CHUNK
    first = tl.load(STARTS + row)
    count = tl.load(STARTS + row + 1) - first - begin
    skipped = tl.load(SLOTS + row.to(tl.int64) * stride_slots) < 0
    count = tl.where(skipped | (keeps_all(VERIFIED, row) != 0), 0, tl.minimum(count, CHUNK))
    at = chunk_slot(first, row, CHUNK) + tl.program_id(1)
    return (first + begin).to(tl.int64), count, at.to(tl.int64)


@triton.jit
def column_slot(SLOTS, row, column, stride_slots, COLUMNS: tl.constexpr):
    """The slot of one column of a row, -1 past the last."""
    at = SLOTS + row.to(tl.int64) * stride_slots + column
    return tl.load(at, mask=column < COLUMNS, other=-1).to(tl.int64)


@triton.jit
def softplus(x):
    """log(1 + exp(x)) to float32's own precision, x itself beyond 20."""
    # log1p(u) = 2 atanh(u / (2 + u)): a GPU's own log loses what 1 + u has rounded away
    u = tl.exp(-tl.abs(x))
    s = u / (2.0 + u)
    q = s * s
    series = 1.0 / 13.0 + q * (1.0 / 15.0)
    series = 1.0 / 9.0 + q * (1.0 / 11.0 + q * series)
    series = 1.0 / 5.0 + q * (1.0 / 7.0 + q * series)
    series = 1.0 + q * (1.0 / 3.0 + q * series)
    return tl.where(x > 20.0, x, tl.maximum(x, 0.0) + 2.0 * s * series)


@triton.jit
def change(x):
    """exp(x) - 1 to float32's own precision, x at most 0.

    state + state * change(g) instead of state * exp(g): over a thousand tokens the rounding of a
    slow decay, close to 1, would add up.
    """
    series = 1.0 + x * (1.0 / 7.0) * (1.0 + x * (1.0 / 8.0))
    series = 1.0 + x * (1.0 / 5.0) * (1.0 + x * (1.0 / 6.0) * series)
    series = 1.0 + x * (1.0 / 3.0) * (1.0 + x * (1.0 / 4.0) * series)
    return tl.where(x > -0.4, x * (1.0 + x * 0.5 * series), tl.exp(x) - 1.0)


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


TILE = 1024
"""Elements of a state that one program carries in registers, by WARPS warps: the fastest of
sixteen pairs for decoding many sequences on an H200, but for Mamba 1."""

WARPS = 1


class Steps(NamedTuple):
    """tile and warps of a kernel that steps.

    few: for batches of at most `most` elements of states, which latency bounds and not bandwidth,
    so that more warps share a tile.
    """

    most: int
    few: tuple[int, int]
    many: tuple[int, int] = (TILE, WARPS)

    def taken(self, elements: int, knobs: Mapping[str, Any]) -> tuple[int, int]:
        tile, warps = self.few if elements <= self.most else self.many
        return knobs.get("tile", tile), knobs.get("warps", warps)


def tile_rows(rows: int, width: int, least: int = 8, tile: int = TILE) -> int:
    """How many rows of a state of this (padded) width a program takes, at most all of them.

    In the interpreter a program costs the same whatever its size, so it takes many.
    """
    return min(power_of_2(rows), 256 if interpreting() else max(tile // width, least))


def power_of_2(count: int) -> int:
    """The least one that holds `count`, at least 1. Triton's own takes microseconds of a launch."""
    return 1 << (count - 1).bit_length()


def blocks(count: int, size: int) -> int:
    """How many of this size hold `count`. Triton's own takes microseconds of a launch."""
    return -(-count // size)


def row_arguments(metadata: StateMetadata) -> tuple[Any, ...]:
    """STARTS, SLOTS, KNOWN, ACCEPTED, VERIFIED and the stride of SLOTS; all but SLOTS' rows dense.

    Copied at every call where they are not: a program may fill them anew in between.
    """
    slots = metadata.state_indices
    slots = slots if slots.stride(1) == 1 else slots.contiguous()
    accepted, verified = metadata.num_accepted, metadata.speculative
    return (
        metadata.query_start_loc.contiguous(),
        slots,
        metadata.has_initial_state.contiguous(),
        None if accepted is None else accepted.contiguous(),
        None if verified is None else verified.contiguous(),
        slots.stride(0),
    )


def dense(value: Tensor) -> Tensor:
    """The tensor with a dense last dimension: itself where it has one."""
    return value if value.stride(-1) == 1 else value.contiguous()


def check_slots(state: Tensor) -> None:
    """InputError where a slot is not dense: kernels step inside it without strides."""
    wanted, size = [], 1
    for width in reversed(state.shape[1:]):
        wanted.append(size)
        size *= width
    found = list(state.stride()[1:])
    if state.shape[0] and found != wanted[::-1]:
        raise InputError(
            f"state pool: a slot's strides must be {wanted[::-1]} (dense); they are {found}"
        )


def interpreting() -> bool:
    """True where Triton's interpreter runs the kernels, which must not compute in bfloat16."""
    return bool(triton.knobs.runtime.interpret)


def empty(out: Tensor, metadata: StateMetadata) -> bool:
    """True where there is nothing to launch for."""
    return out.numel() == 0 or metadata.state_indices.shape[0] == 0 or metadata.max_query_len == 0


def constant(value: Tensor | None) -> Any:
    """A constant of the layer, dense; kernels convert it, so that no other launch does."""
    return None if value is None else value.contiguous()
