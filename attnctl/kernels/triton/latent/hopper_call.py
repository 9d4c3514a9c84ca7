"""Calls of the Hopper kernel of latent attention: which batches it takes, and their launch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.triton.descriptors import box_layout
from attnctl.kernels.triton.gluon_version import known_triton
from attnctl.kernels.triton.latent.launch import lse_strides, partial_for, reduce_launch
from attnctl.kernels.triton.launch import LOG2E, Device, Launch, power
from attnctl.kernels.triton.relaunch import Scratch
from attnctl.ops.mla import Latent
from attnctl.ops.packed_rows import GROUP
from attnctl.runtime import Metadata

HEADS = 64
"""Heads of a program: the matrix unit's own height."""

KEYS = 64
"""Keys of a tile."""

SEGMENT_TILES = 3
"""What a program costs beside its tiles, in tiles: its query, the first copy, its output."""

JOIN_TILES = 1
"""What the launch of the reduce pass costs."""

PART_BYTES = 3e6
"""Bytes of parts that are written and read in the time of a tile."""

MAX_SEGMENTS = 128


def takes(query: Tensor, cache: Tensor, rank: int, gpu: Device) -> bool:
    """Whether the Hopper kernel runs this batch; what it does not the portable kernels do.

    16-bit rows of 256 + 64 or 512 + 64 columns, in vectors of 16 bytes.
    """
    if gpu.arch != "sm_90" or query.shape[2] - rank != 64 or rank not in (256, 512):
        return False
    if not known_triton():
        return False
    if query.element_size() != 2:
        return False
    if cache.dtype is torch.uint8:
        # packed rows of 512 + 64, whose rope part is bfloat16
        if rank != 512 or query.dtype is not torch.bfloat16:
            return False
    elif cache.dtype is not query.dtype:
        return False
    whole = (*query.stride()[:2], *cache.stride()[:2])
    aligned = query.data_ptr() % 16 == 0 and cache.data_ptr() % 16 == 0
    return aligned and cache.stride(2) == 1 and all(stride % 16 == 0 for stride in whole)


def heads_block(heads: int, max_query_len: int) -> int:
    """Rows of a program that one query token takes: few heads leave room for several tokens."""
    return HEADS if heads > HEADS // 2 or max_query_len == 1 else power(heads)


def segments_for(
    gpu: Device,
    programs: int,
    keys: int,
    rows: int,
    rank: int,
    segment_tiles: int = SEGMENT_TILES,
) -> int:
    """In how many segments a row's keys are cut: what should take least, in tiles of time.

    One program has a multiprocessor to itself. rows: query tokens times heads, each of which leaves
    rank float32 numbers a segment to the reduce pass.
    """
    tiles = max(1, -(-keys // KEYS))
    best, least = 1, 0.0
    for segments in range(1, min(MAX_SEGMENTS, tiles) + 1):
        rounds = -(-programs * segments // gpu.units)
        cost = float(rounds * (-(-tiles // segments) + segment_tiles))
        if segments > 1:
            cost += JOIN_TILES + rows * segments * rank * 4 / PART_BYTES
        if segments == 1 or cost < least:
            best, least = segments, cost
    return best


def hopper_launches(
    query: Tensor,
    cache: Tensor,
    slots: Tensor | None,
    metadata: Metadata,
    params: Latent,
    out: Tensor,
    lse: Tensor | None,
    gpu: Device,
    segments: int | None = None,
    boxes: bool = True,
    segment_tiles: int = SEGMENT_TILES,
    scratch: Scratch | None = None,
) -> list[Launch]:
    """Dense attention, or over slots where they are given; with several segments the reduce pass.

    Nothing here looks at a tensor's contents.
    """
    from attnctl.kernels.triton.latent.hopper import mla_hopper_kernel

    tokens, heads, width = query.shape
    rank = params.kv_lora_rank
    keys = metadata.max_seq_len if slots is None else slots.shape[1]
    block = heads_block(heads, 1 if slots is not None else metadata.max_query_len)
    programs = busy = tokens * -(-heads // HEADS)
    if block < HEADS:
        packed, sequences = HEADS // block, metadata.seq_lens.shape[0]
        programs = tokens // packed + sequences
        busy = min(programs, sequences * -(-metadata.max_query_len // packed))
    if segments is None:
        segments = segments_for(gpu, busy, keys, tokens * heads, rank, segment_tiles)
    # where rows come from memory once, what counts is that a tile's parts are read together
    resident = cache.dtype is not torch.uint8 and (heads > HEADS or slots is not None)
    starts = metadata.query_start_loc
    partial = partial_for(out, segments, scratch)
    rows = metadata.block_table if slots is None else slots
    ropes, stored, scales = cache, None, None
    if cache.dtype is torch.uint8:
        end = rank + 4 * (rank // GROUP)
        ropes, stored = cache[..., end:].view(torch.bfloat16), cache
        scales = cache[..., rank:end].view(torch.float32)
    constants = {
        "HEADS": heads,
        "HEADS_BLOCK": block,
        "PAGE": cache.shape[1],
        "SPARSE": slots is not None,
        "SPLIT": segments > 1,
        "L": rank,
        "R": width - rank,
        "RESIDENT": resident,
        "num_warps": 8,
    }
    arguments = (
        query,
        ropes,
        stored,
        scales,
        rows,
        out,
        lse,
        starts,
        None if slots is not None else metadata.seq_lens,
        partial.part,
        partial.lse,
        *(_boxes(cache, rank) if boxes and slots is None else (None, None)),
        *query.stride()[:2],
        *ropes.stride()[:2],
        *cache.stride()[:2],
        rows.stride(0),
        *out.stride()[:2],
        *lse_strides(lse),
        params.scale * params.kv_scale * LOG2E,
        params.kv_scale,
        starts.shape[0] - 1,
        cache.shape[0] * cache.shape[1],
        keys,
        1,
    )
    found = [Launch(mla_hopper_kernel, (programs, segments), arguments, constants)]
    if segments > 1:
        found.append(reduce_launch(partial, out, lse, starts, early=True))
    return found


def _boxes(cache: Tensor, rank: int) -> tuple[Any, Any]:
    """A tile's latent and rope part as boxes of a matrix; None where a page holds no whole tiles.

    The matrix is the pages one below the other, so that nothing may lie between them.
    """
    blocks, page, width = cache.shape
    stride = cache.stride(1)
    if page % KEYS or cache.stride(0) != page * stride or blocks * page >= 2**31:
        return None, None
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    made = []
    for columns in (rank, width - rank):
        layout = box_layout(KEYS, columns, cache.dtype)
        shape = [blocks * page, width]
        made.append(TensorDescriptor(cache, shape, [stride, 1], [KEYS, columns], layout))
    return made[0], made[1]
