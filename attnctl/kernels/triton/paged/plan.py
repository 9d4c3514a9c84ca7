"""Which kernel runs a batch, with which tiles: one pure function of shapes and the device.

Nothing here looks at a tensor's contents, so the same shapes always give the same launch and a
CUDA graph can hold it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from attnctl.kernels.triton.launch import Device, Tiles, padded, power


class Knobs(msgspec.Struct, frozen=True, kw_only=True):
    """What may be tuned. The defaults are the field's constants, for a device nobody has timed.

    min_programs: a decode launch of fewer programs than this cuts the keys in segments, into at
    most `segments` (a power of two) of at least least_keys keys, while no more than `fill`
    programs a compute unit run. split_queries: batches whose longest query is no longer than this
    many tokens go to the decode kernel, whose rows follow from the batch. prefill, wide: tiles of
    the prefill kernel where K and V together are at most 256 columns wide, and where they are
    wider; wide_decode: tiles of the decode kernel there, None for its own. descriptors: prefill
    reads K and V by tensor descriptors where the cache allows it. groups: Hopper's own prefill
    kernel runs what it takes.
    """

    min_programs: int = 128
    segments: int = 16
    fill: int = 2
    least_keys: int = 128
    split_queries: int = 16
    decode: Tiles = Tiles(16, 64, 4, 3)
    prefill: Tiles = Tiles(64, 64, 4, 2)
    wide: Tiles = Tiles(64, 32, 4, 2)
    wide_decode: Tiles | None = None
    descriptors: bool = False
    groups: bool = False


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch depends on. item_bytes: of the query; cache_bytes: of a cached element."""

    tokens: int
    sequences: int
    heads: int
    kv_heads: int
    width: int
    value_width: int
    page: int
    item_bytes: int
    cache_bytes: int
    max_query_len: int
    max_seq_len: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One launch: the kernel, its tiles, its grid, and the segments that a reduce pass joins."""

    kernel: Literal["prefill", "decode"]
    rows: int
    tile: int
    warps: int
    stages: int
    heads: int
    """Heads of one group that a tile holds."""
    parts: int
    """Tiles that a group's heads take."""
    query_tiles: int
    """Query tiles: of all sequences (prefill), of one (decode)."""
    segments: int = 1
    least_tiles: int = 1
    descriptors: bool = False
    groups: bool = False
    """Whether Hopper's own kernel runs what of the batch's features and strides it takes."""
    precision: str | None = None
    """Of float32 products: Triton's default, tf32, keeps three digits."""


TUNED = {
    # on an H200, triton 3.6: benchmarks/results/
    "sm_90": Knobs(
        min_programs=10**9,
        segments=64,
        decode=Tiles(16, 128, 4, 2),
        prefill=Tiles(64, 64, 4, 3),
        wide=Tiles(128, 64, 8, 3),
        descriptors=True,
        groups=True,
    ),
}
"""Knobs by arch, each measured there (benchmarks/paged_gpu.py)."""


# no card was there to time: the tiles that spill least (attnctl smoke --compile-for)
RDNA = Knobs(
    decode=Tiles(16, 32, 8, 1),
    wide_decode=Tiles(16, 16, 8, 1),
    prefill=Tiles(64, 32, 8, 1),
    wide=Tiles(32, 16, 8, 1),
)


def knobs_for(arch: str) -> Knobs:
    """The knobs measured on this arch, those that compile well for it, or the constants."""
    if arch.startswith(("gfx11", "gfx12")):
        return RDNA
    return TUNED.get(arch) or Knobs()


def plan(shape: Shape, device: Device, knobs: Knobs) -> Plan:
    """The launch of a batch of this shape."""
    group = shape.heads // shape.kv_heads
    if shape.max_query_len <= knobs.split_queries:
        return _decode(shape, device, knobs, power(shape.max_query_len * min(group, 128), 1))
    prefill = _prefill(shape, device, knobs, group)
    programs = prefill.query_tiles * shape.kv_heads * prefill.parts
    # a short prompt on a long context: too few tiles to fill the device, so its keys are cut too
    if programs * 4 <= device.units and shape.max_seq_len >= 8 * shape.max_query_len:
        return _decode(shape, device, knobs, 64)
    return prefill


def _prefill(shape: Shape, device: Device, knobs: Knobs, group: int) -> Plan:
    wide = padded(shape.width) + padded(shape.value_width) > 256
    wanted = knobs.wide if wide else knobs.prefill
    rows, warps = wanted.rows, wanted.warps
    # the running sum must leave registers to the rest: at most half of 255 each
    # (compiled for NVIDIA, float32 rows of twice as many spill a kilobyte a thread)
    most = 128 if shape.item_bytes <= 2 else 16
    while rows * padded(shape.value_width) > 32 * warps * most and rows > 16:
        warps, rows = (warps * 2, rows) if warps < 8 else (warps, rows // 2)
    keys = wanted.keys if shape.item_bytes <= 2 else min(wanted.keys, 32)
    tile, stages = _fit(shape, device, rows, keys, wanted.stages)
    whole_boxes = shape.page % tile == 0 and shape.item_bytes == shape.cache_bytes == 2
    heads = min(group, rows)
    return Plan(
        kernel="prefill",
        rows=rows,
        tile=tile,
        warps=warps,
        stages=stages,
        heads=heads,
        parts=-(-group // heads),
        query_tiles=shape.tokens // (rows // heads) + shape.sequences,
        descriptors=knobs.descriptors and whole_boxes,
        groups=knobs.groups and _has_groups(shape, device),
        precision=_precision(shape, device),
    )


def _has_groups(shape: Shape, device: Device) -> bool:
    """Whether Hopper's own kernel has code for this shape, and its tiles of 128 tokens fill.

    16-bit keys of 128 or 192 columns and values of 128, in pages that tiles are cut in. A sequence
    of one token takes a whole tile of each head: with many of them beside a long prompt the
    portable kernel, whose tiles hold the heads of a group, has less to do.
    """
    fits = shape.page >= 16 and (128 % shape.page == 0 or shape.page % 128 == 0)
    widths = shape.width in (128, 192) and shape.value_width == 128
    plain = shape.item_bytes == shape.cache_bytes == 2
    alike = 2 * shape.tokens >= shape.max_query_len * shape.sequences
    full = shape.tokens >= (128 if alike else 512) * shape.sequences
    return device.arch == "sm_90" and fits and widths and plain and full


def _decode(shape: Shape, device: Device, knobs: Knobs, rows: int) -> Plan:
    group = shape.heads // shape.kv_heads
    wide = padded(shape.width) + padded(shape.value_width) > 256
    wanted = (knobs.wide_decode if wide else None) or knobs.decode
    rows = max(wanted.rows, min(rows, 128 if padded(shape.value_width) <= 128 else 64))
    warps = max(wanted.warps, 8 if rows * padded(shape.value_width) > 64 * 128 else 1)
    tile, stages = _fit(shape, device, rows, wanted.keys, wanted.stages)
    heads = min(group, rows)
    parts = -(-group // heads)
    query_tiles = -(-shape.max_query_len // (rows // heads))
    programs = shape.sequences * query_tiles * shape.kv_heads * parts
    least_tiles = max(1, knobs.least_keys // tile)
    segments = 1
    if programs < knobs.min_programs:
        most = min(knobs.segments, -(-shape.max_seq_len // (least_tiles * tile)))
        while segments < most and 2 * programs * segments <= knobs.fill * device.units:
            segments *= 2
    return Plan(
        kernel="decode",
        rows=rows,
        tile=tile,
        warps=warps,
        stages=stages,
        heads=heads,
        parts=parts,
        query_tiles=query_tiles,
        segments=segments,
        least_tiles=least_tiles,
        precision=_precision(shape, device),
    )


def _precision(shape: Shape, device: Device) -> str | None:
    if shape.item_bytes < 4:
        return None
    # three tf32 products on the matrix unit; the exact one would spill on NVIDIA's plain units
    return "tf32x3" if device.arch.startswith("sm_") else "ieee"


def _fit(shape: Shape, device: Device, rows: int, tile: int, stages: int) -> tuple[int, int]:
    """The tile and stages, made smaller until an estimate of their shared memory fits.

    The smallest is left to the compiler: without stages it keeps most of it in registers.
    """
    widths = padded(shape.width) + padded(shape.value_width)
    while True:
        query = rows * padded(shape.width) * shape.item_bytes
        # a cache of another dtype is widened on its way into the product
        wide = shape.item_bytes if shape.item_bytes != shape.cache_bytes else 0
        keys = tile * widths * (stages * shape.cache_bytes + wide)
        weights = rows * tile * shape.item_bytes
        smallest = tile <= 16 and stages == 1
        if query + keys + weights <= device.shared_memory_bytes or smallest:
            return tile, stages
        if stages > 2 or tile <= 16:
            stages -= 1
        else:
            tile //= 2
