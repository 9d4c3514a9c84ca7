"""The K largest logits of each row, in order: a radix select over the logits' bits, 8 at a time.

No sort: because the last pass walks the context in order, equal logits fall to the first and the
list comes out ascending. Many rows are a program each; few long rows are cut in chunks, whose
programs meet in counts that every launch reads from the one before.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.latent.launch import latent_device
from attnctl.kernels.triton.latent.tile import find_sequence
from attnctl.kernels.triton.launch import Launch
from attnctl.runtime import Metadata

CHUNK = 1024
"""Logits that a program of a whole row holds at a time."""

PIECE = 4096
"""Logits of a program where rows are cut."""


@triton.jit
def ordered_bits(value):
    """Unsigned integers in the order of the floats; both zeros are one."""
    bits = tl.where(value == 0.0, 0.0, value).to(tl.uint32, bitcast=True)
    return tl.where((bits >> 31) == 1, bits ^ 0xFFFFFFFF, bits | 0x80000000)


@triton.jit
def visible_columns(STARTS, LENGTHS, token, sequences):
    """How many context tokens a query token sees; 0 for a token of no sequence."""
    visible = 0
    if token < tl.load(STARTS + sequences):
        sequence = find_sequence(STARTS, token, sequences)
        last = tl.load(STARTS + sequence + 1)
        visible = (tl.load(LENGTHS + sequence) - last + token + 1).to(tl.int32)
    return visible


@triton.jit
def next_digit(counts, threshold, need):
    """The threshold with one more digit, and how many of its equals are still needed."""
    digits = tl.arange(0, 256)
    # of each digit: how many logits have it or a larger one
    reach = tl.sum(counts, 0) - tl.cumsum(counts, 0) + counts
    chosen = tl.sum((reach >= need).to(tl.int32), 0) - 1
    need -= tl.sum(tl.where(digits > chosen, counts, 0), 0)
    return (threshold << 8) | chosen.to(tl.uint32), need


@triton.jit
def digit_counts(bits, inside, threshold, STEP: tl.constexpr):
    """[256] int32: the STEPth digits of the logits whose digits before are the threshold's."""
    if STEP > 0:
        inside = inside & ((bits >> (32 - 8 * STEP)) == threshold)
    digit = ((bits >> (24 - 8 * STEP)) & 255).to(tl.int32)
    return tl.histogram(digit, 256, mask=inside)


@triton.jit
def pick_kernel(
    LOGITS,
    OUT,
    STARTS,
    LENGTHS,
    stride_logits,
    stride_out,
    sequences,
    TOPK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Grid: (T,). Columns of the TOPK largest logits of a row, ascending, then -1."""
    token = tl.program_id(0).to(tl.int64)
    if token >= tl.load(STARTS + sequences):
        return
    visible = visible_columns(STARTS, LENGTHS, token, sequences)
    row = LOGITS + token * stride_logits
    out = OUT + token * stride_out
    place = tl.arange(0, CHUNK)
    if visible <= TOPK:
        for start in range(0, TOPK, CHUNK):
            column = start + place
            tl.store(out + column, tl.where(column < visible, column, -1), mask=column < TOPK)
        return
    threshold = tl.full([1], 0, tl.uint32)
    need = TOPK
    for step in tl.static_range(4):
        counts = tl.zeros([256], tl.int32)
        for start in range(0, visible, CHUNK):
            inside = start + place < visible
            bits = ordered_bits(tl.load(row + start + place, mask=inside, other=0.0))
            counts += digit_counts(bits, inside, threshold, step)
        threshold, need = next_digit(counts, threshold, need)
    written = 0
    equals = 0
    for start in range(0, visible, CHUNK):
        inside = start + place < visible
        bits = ordered_bits(tl.load(row + start + place, mask=inside, other=0.0))
        equal = (inside & (bits == threshold)).to(tl.int32)
        kept = (equal > 0) & (tl.cumsum(equal, 0) + equals <= need)
        take = ((inside & (bits > threshold)) | kept).to(tl.int32)
        target = written + tl.cumsum(take, 0) - 1
        tl.store(out + target, start + place, mask=take > 0)
        written += tl.sum(take, 0)
        equals += tl.sum(equal, 0)


@triton.jit
def threshold_of(COUNTS, TOPK: tl.constexpr, STEPS: tl.constexpr):
    """The first digits of a row's threshold and how many of its equals are needed."""
    threshold = tl.full([1], 0, tl.uint32)
    need = TOPK
    for step in tl.static_range(STEPS):
        counts = tl.load(COUNTS + step * 256 + tl.arange(0, 256))
        threshold, need = next_digit(counts, threshold, need)
    return threshold, need


@triton.jit
def pick_count_kernel(
    LOGITS,
    COUNTS,
    STARTS,
    LENGTHS,
    stride_logits,
    sequences,
    TOPK: tl.constexpr,
    STEP: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Grid: (T, pieces). Adds a piece's digits to COUNTS [T, 4, 256], which starts as zeros."""
    token = tl.program_id(0).to(tl.int64)
    visible = visible_columns(STARTS, LENGTHS, token, sequences)
    column = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    if visible <= TOPK or tl.program_id(1) * PIECE >= visible:
        return
    counts = COUNTS + token * 1024
    threshold, _ = threshold_of(counts, TOPK, STEP)
    inside = column < visible
    bits = ordered_bits(tl.load(LOGITS + token * stride_logits + column, mask=inside, other=0.0))
    found = digit_counts(bits, inside, threshold, STEP)
    at = counts + STEP * 256 + tl.arange(0, 256)
    tl.atomic_add(at, found, mask=found > 0, sem="relaxed")


@triton.jit
def pick_place_kernel(
    LOGITS,
    COUNTS,
    PLACES,
    STARTS,
    LENGTHS,
    stride_logits,
    sequences,
    TOPK: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Grid: (T, pieces). PLACES [T, 2, pieces]: logits above the threshold, and equal to it."""
    token = tl.program_id(0).to(tl.int64)
    piece = tl.program_id(1)
    pieces = tl.num_programs(1)
    visible = visible_columns(STARTS, LENGTHS, token, sequences)
    column = piece * PIECE + tl.arange(0, PIECE)
    if visible <= TOPK or piece * PIECE >= visible:
        return
    threshold, _ = threshold_of(COUNTS + token * 1024, TOPK, 4)
    inside = column < visible
    bits = ordered_bits(tl.load(LOGITS + token * stride_logits + column, mask=inside, other=0.0))
    places = PLACES + token * 2 * pieces + piece
    tl.store(places, tl.sum((inside & (bits > threshold)).to(tl.int32), 0))
    tl.store(places + pieces, tl.sum((inside & (bits == threshold)).to(tl.int32), 0))


@triton.jit
def pick_write_kernel(
    LOGITS,
    COUNTS,
    PLACES,
    OUT,
    STARTS,
    LENGTHS,
    stride_logits,
    stride_out,
    sequences,
    TOPK: tl.constexpr,
    PIECE: tl.constexpr,
    PIECES_BLOCK: tl.constexpr,
):
    """Grid: (T, pieces). Writes a piece's picks behind those of the pieces before it."""
    token = tl.program_id(0).to(tl.int64)
    piece = tl.program_id(1)
    pieces = tl.num_programs(1)
    if token >= tl.load(STARTS + sequences):
        return
    visible = visible_columns(STARTS, LENGTHS, token, sequences)
    column = piece * PIECE + tl.arange(0, PIECE)
    out = OUT + token * stride_out
    if visible <= TOPK:
        tl.store(out + column, tl.where(column < visible, column, -1), mask=column < TOPK)
        return
    if piece * PIECE >= visible:
        return
    threshold, need = threshold_of(COUNTS + token * 1024, TOPK, 4)
    other = tl.arange(0, PIECES_BLOCK)
    places = PLACES + token * 2 * pieces + other
    above = tl.sum(tl.load(places, mask=other < piece, other=0), 0)
    equals = tl.sum(tl.load(places + pieces, mask=other < piece, other=0), 0)
    inside = column < visible
    bits = ordered_bits(tl.load(LOGITS + token * stride_logits + column, mask=inside, other=0.0))
    equal = (inside & (bits == threshold)).to(tl.int32)
    kept = (equal > 0) & (tl.cumsum(equal, 0) + equals <= need)
    take = ((inside & (bits > threshold)) | kept).to(tl.int32)
    target = above + tl.minimum(equals, need) + tl.cumsum(take, 0) - 1
    tl.store(out + target, column, mask=take > 0)


def pick_launches(
    logits: Tensor,
    metadata: Metadata,
    topk: int,
    out: Tensor,
    cut: bool | None = None,
) -> list[Launch]:
    """logits: [T, columns] float32. out: [T, K] int32, every row of a sequence written whole.

    cut: whether rows are cut in pieces; by themselves they are where too few would fill the device.
    """
    gpu = latent_device(logits.device)
    tokens, columns = logits.shape
    sequences = metadata.seq_lens.shape[0]
    places = (metadata.query_start_loc, metadata.seq_lens)
    if cut is None:
        cut = tokens <= 4 * gpu.units and columns > PIECE
    if not cut:
        arguments = (logits, out, *places, logits.stride(0), out.stride(0), sequences)
        constants = {"TOPK": topk, "CHUNK": CHUNK, "num_warps": 4}
        return [Launch(pick_kernel, (tokens,), arguments, constants)]
    # the last launch writes lists longer than the context too
    grid = (tokens, -(-max(columns, topk) // PIECE))
    counts = torch.zeros(tokens, 4, 256, dtype=torch.int32, device=logits.device)
    found = counts.new_empty(tokens, 2, grid[1])
    rest = (*places, logits.stride(0))
    sizes = {"TOPK": topk, "PIECE": PIECE, "num_warps": 8}
    return [
        *(
            Launch(
                pick_count_kernel, grid, (logits, counts, *rest, sequences), {**sizes, "STEP": i}
            )
            for i in range(4)
        ),
        Launch(pick_place_kernel, grid, (logits, counts, found, *rest, sequences), sizes),
        Launch(
            pick_write_kernel,
            grid,
            (logits, counts, found, out, *rest, out.stride(0), sequences),
            {**sizes, "PIECES_BLOCK": triton.next_power_of_2(grid[1])},
        ),
    ]
