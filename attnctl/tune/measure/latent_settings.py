"""The launches of latent attention that a tune tries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from attnctl.kernels.triton.latent.hopper_call import SEGMENT_TILES
from attnctl.kernels.triton.latent.knobs import PORTABLE
from attnctl.kernels.triton.latent.launch import latent_tiles
from attnctl.kernels.triton.launch import Device, Tiles, power
from attnctl.tune.amounts import amounts, item_bytes
from attnctl.tune.settings import Effort, Knobs, Limits, Setting, Work

SEGMENT_COSTS = (SEGMENT_TILES, 1, 6, 0, 2, 4, 12, 24)

# rows, keys, warps, stages
TILE_SIZES = (
    *((64, 32, 8, 2), (16, 32, 4, 2), (64, 64, 8, 1), (16, 64, 4, 2), (16, 32, 4, 3)),
    *((64, 16, 8, 3), (32, 32, 4, 2), (32, 32, 8, 2), (64, 64, 8, 2), (16, 64, 8, 2)),
    *((32, 64, 8, 2), (64, 32, 4, 2), (64, 32, 8, 3), (16, 16, 4, 3), (32, 64, 4, 1)),
    *((16, 32, 8, 3), (64, 32, 8, 1), (32, 32, 4, 3), (16, 128, 4, 1), (32, 16, 4, 4)),
    (32, 16, 4, 3),
)
FILLS = (1, 2, 4)

SPARE = 1024
"""Bytes of barriers and offsets."""


def latent_settings(work: Work, limits: Limits) -> tuple[Setting, ...]:
    """The default first, each once. Of the uncompressed form there is the default alone."""
    layer, mla = work.layer, work.layer.group.mla
    if mla is None or (work.phase == "prefill" and layer.op == "mla"):
        return (Setting(),)
    found = [Setting()]
    hopper = _takes(work, limits)
    if hopper:
        for boxes, cost in product((True, False) if layer.op == "mla" else (True,), SEGMENT_COSTS):
            knobs = _hopper(boxes, cost)
            if knobs:
                found.append(Setting(knobs=knobs))
    device = Device(limits.arch, limits.units, limits.shared_memory_bytes)
    widths = (mla.kv_lora_rank, mla.qk_rope_head_dim, item_bytes(layer))
    packed = layer.kv_cache_dtype == "fp8_ds_mla"
    own = latent_tiles(device, layer.heads or 1, *widths, packed=packed)
    kernel = PORTABLE if hopper else ""
    for fill, tile in product(FILLS, _tiles(own)):
        if _fits(tile, limits, *widths, packed=packed) and tile.rows <= power(layer.heads or 1):
            knobs = _changed(own, tile, fill)
            if knobs or hopper:
                effort = _effort(work, tile)
                found.append(Setting(knobs=knobs, kernel=kernel, effort=effort))
    return tuple(found)


def _takes(work: Work, limits: Limits) -> bool:
    """Whether the Hopper kernel is the usual one: what its own test asks of shapes and dtypes."""
    layer, mla = work.layer, work.layer.group.mla
    assert mla is not None
    return (
        limits.arch == "sm_90"
        and mla.qk_rope_head_dim == 64
        and mla.kv_lora_rank in (256, 512)
        and item_bytes(layer) == 2
        and layer.kv_cache_dtype in ("auto", layer.dtype, "fp8_ds_mla")
    )


def _hopper(boxes: bool, cost: int) -> Knobs:
    knobs: Knobs = {} if boxes else {"hopper.boxes": False}
    if cost != SEGMENT_TILES:
        knobs["hopper.segment_tiles"] = cost
    return knobs


def _tiles(own: Tiles) -> Iterator[Tiles]:
    yield own
    yield from (one for one in (Tiles(*sizes) for sizes in TILE_SIZES) if one != own)


def _fits(tile: Tiles, limits: Limits, rank: int, rope: int, size: int, *, packed: bool) -> bool:
    """Whether a block's shared memory holds the tile, as it compiled to for nine targets.

    The queries, the keys of each stage and the weights; on NVIDIA also what changes its layout: the
    values of a tile that one stage loads, and on data-center Blackwell, whose products of 64 rows
    read shared memory alone, two copies of a tile's keys and values. packed: rows that are widened.
    """
    values = power(rank) * size
    row = values + (power(rope) if rope else 0) * size
    queries = tile.rows * row
    need = queries + tile.stages * tile.keys * row + tile.rows * tile.keys * size
    if limits.arch.startswith("sm_") and tile.stages == 1:
        need += min(tile.rows, tile.keys) * values
    elif limits.arch.startswith(("sm_10", "sm_11")) and tile.rows >= 64 and not packed:
        need = max(need, queries + 2 * tile.keys * (row + values) + SPARE)
    return need <= limits.shared_memory_bytes


def _changed(own: Tiles, tile: Tiles, fill: int) -> Knobs:
    fields: dict[str, Any] = {name: getattr(tile, name) for name in tile.__struct_fields__}
    knobs: Knobs = {name: value for name, value in fields.items() if value != getattr(own, name)}
    if fill != 1:
        knobs["fill"] = fill
    return knobs


def _effort(work: Work, tile: Tiles) -> Effort:
    """Rows that no head fills cost as much as others; each part of the heads reads all keys."""
    least, heads = amounts(work), work.layer.heads or 1
    parts = -(-heads // tile.rows)
    padding = parts * tile.rows / heads
    programs = work.batch * work.query * parts
    again = 1 + 0.1 * (parts - 1)
    # cut until the device is full, whatever their number
    return Effort(
        bytes=least.bytes * again, flops=least.flops * padding, programs=max(programs, 1 << 16)
    )
