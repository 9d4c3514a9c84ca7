"""Calls of latent attention in Triton: dense over a paged cache, and over named slots."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.triton.latent.decode import mla_decode_kernel
from attnctl.kernels.triton.latent.hopper_call import hopper_launches, takes
from attnctl.kernels.triton.latent.knobs import USUAL, LatentKnobs
from attnctl.kernels.triton.latent.launch import (
    LEAST_KEYS,
    converts_e4m3,
    latent_device,
    latent_tiles,
    lse_strides,
    partial_for,
    precision,
    reduce_launch,
    segments_of,
)
from attnctl.kernels.triton.latent.sparse import mla_sparse_kernel
from attnctl.kernels.triton.launch import LOG2E, Device, Launch, Tiles, power
from attnctl.kernels.triton.relaunch import Scratch
from attnctl.ops.mla import Latent
from attnctl.ops.packed_rows import GROUP
from attnctl.runtime import Metadata

FORMATS = {torch.float8_e4m3fn: 1, torch.float8_e5m2: 2, torch.uint8: 1}
"""How the kernels number a cache's FP8 format; a cache of bytes holds packed rows, in E4M3."""


def decode_launches(
    query: Tensor,
    cache: Tensor,
    metadata: Metadata,
    params: Latent,
    out: Tensor,
    lse: Tensor | None,
    gpu: Device | None = None,
    tiles: Tiles | None = None,
    segments: int | None = None,
    knobs: LatentKnobs = USUAL,
    scratch: Scratch | None = None,
) -> list[Launch]:
    """The launches of the absorbed form: the kernel, and where keys are cut the reduce pass.

    tiles, segments: of the portable kernel, where its own choice is not wanted. scratch: what
    segments leave is written to, its own where it is None.
    """
    gpu = gpu or latent_device(query.device)
    rank = params.kv_lora_rank
    if tiles is None and not knobs.portable and takes(query, cache, rank, gpu):
        rest = (metadata, params, out, lse, gpu, None, knobs.boxes, knobs.segment_tiles)
        return hopper_launches(query, cache, None, *rest, scratch)
    tokens, heads, width = query.shape
    widths = (rank, width - rank, query.element_size())
    tiles = tiles or knobs.tiles(latent_tiles(gpu, heads, *widths))
    parts = -(-heads // tiles.rows)
    segments = segments or segments_of(gpu, tokens * parts, metadata.max_seq_len, knobs.fill)
    partial = partial_for(out, segments, scratch)
    latent, rope, _ = _planes(cache, rank)
    starts = metadata.query_start_loc
    arguments = (
        query,
        latent,
        rope,
        out,
        lse,
        metadata.block_table,
        starts,
        metadata.seq_lens,
        partial.part,
        partial.lse,
        *query.stride()[:2],
        *latent.stride()[:2],
        *rope.stride()[:2],
        *out.stride()[:2],
        *lse_strides(lse),
        metadata.block_table.stride(0),
        params.scale * params.kv_scale * LOG2E,
        params.kv_scale,
        starts.shape[0] - 1,
        max(1, LEAST_KEYS // tiles.keys),
    )
    constants = _constants(query, cache, rank, tiles, gpu, partial.segments > 1)
    grid = (tokens, parts, partial.segments)
    found = [Launch(mla_decode_kernel, grid, arguments, constants)]
    return found if partial.segments == 1 else [*found, reduce_launch(partial, out, lse, starts)]


def sparse_launches(
    query: Tensor,
    cache: Tensor,
    slots: Tensor,
    metadata: Metadata,
    params: Latent,
    out: Tensor,
    lse: Tensor | None,
    gpu: Device | None = None,
    tiles: Tiles | None = None,
    segments: int | None = None,
    knobs: LatentKnobs = USUAL,
) -> list[Launch]:
    """The launches of the sparse form; slots: [T, K] int32, its last dimension dense."""
    gpu = gpu or latent_device(query.device)
    rank = params.kv_lora_rank
    if tiles is None and not knobs.portable and takes(query, cache, rank, gpu):
        rest = (metadata, params, out, lse, gpu, None, knobs.boxes, knobs.segment_tiles)
        return hopper_launches(query, cache, slots, *rest)
    tokens, heads, width = query.shape
    packed = cache.dtype is torch.uint8
    widths = (rank, width - rank, query.element_size())
    tiles = tiles or knobs.tiles(latent_tiles(gpu, heads, *widths, packed=packed))
    parts = -(-heads // tiles.rows)
    segments = segments or segments_of(gpu, tokens * parts, slots.shape[1], knobs.fill)
    partial = partial_for(out, segments)
    latent, rope, scales = _planes(cache, rank)
    starts = metadata.query_start_loc
    arguments = (
        query,
        latent,
        rope,
        scales,
        slots,
        out,
        lse,
        starts,
        partial.part,
        partial.lse,
        *query.stride()[:2],
        *latent.stride()[:2],
        *rope.stride()[:2],
        *((0, 0) if scales is None else scales.stride()[:2]),
        slots.stride(0),
        *out.stride()[:2],
        *lse_strides(lse),
        params.scale * params.kv_scale * LOG2E,
        params.kv_scale,
        starts.shape[0] - 1,
        cache.shape[0] * cache.shape[1],
        slots.shape[1],
        max(1, LEAST_KEYS // tiles.keys),
    )
    constants = _constants(query, cache, rank, tiles, gpu, partial.segments > 1)
    grid = (tokens, parts, partial.segments)
    found = [Launch(mla_sparse_kernel, grid, arguments, constants)]
    return found if partial.segments == 1 else [*found, reduce_launch(partial, out, lse, starts)]


def dense_query(query: Tensor) -> Tensor:
    """The query with a dense last dimension, which is all that the kernels ask of strides."""
    return query if query.stride(-1) == 1 else query.contiguous()


def _planes(cache: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """The latent part, the rope part and the scales of a cache, as views that kernels can load."""
    if cache.dtype is torch.uint8:
        end = rank + 4 * (rank // GROUP)
        scales = cache[..., rank:end].view(torch.float32)
        return cache[..., :rank], cache[..., end:].view(torch.bfloat16), scales
    plain = cache.view(torch.uint8) if cache.dtype in FORMATS else cache
    return plain[..., :rank], plain[..., rank:], None


def _constants(
    query: Tensor, cache: Tensor, rank: int, tiles: Tiles, gpu: Device, split: bool
) -> dict[str, Any]:
    heads, rope = query.shape[1], query.shape[2] - rank
    coded = FORMATS.get(cache.dtype, 0)
    return {
        "HEADS": heads,
        "BLOCK_M": tiles.rows,
        "TILE": tiles.keys,
        "PAGE": cache.shape[1],
        "L": rank,
        "L_BLOCK": power(rank, GROUP if cache.dtype is torch.uint8 else 16),
        "R": rope,
        "R_BLOCK": power(rope),
        "FORMAT": 3 if coded == 1 and converts_e4m3(gpu) else coded,
        "SPLIT": split,
        "INTERPRET": query.device.type == "cpu",
        "PRECISION": precision(gpu, query.element_size()),
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }
