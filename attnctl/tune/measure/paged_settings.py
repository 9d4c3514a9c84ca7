"""The launches of the paged Triton kernels that a tune tries, for each work and device."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from attnctl.kernels.triton.launch import Device, padded
from attnctl.kernels.triton.paged.knobs import changed, flat
from attnctl.kernels.triton.paged.plan import Knobs, Plan, Shape, knobs_for, plan
from attnctl.tune.amounts import (
    amounts,
    cached_bytes,
    item_bytes,
    kept_tokens,
    seen_pairs,
)
from attnctl.tune.measure.tensor_memory import fits_tensor_memory
from attnctl.tune.settings import BLOCK_SIZE, Effort, Limits, Setting, Work

Changes = dict[str, Any]

ALWAYS = 10**9
"""min_programs that lets every decode launch be cut."""

# keys, warps, stages; the best of benchmarks/results/h200_sweeps.json first
DECODE_TILES = (
    *((128, 4, 2), (64, 4, 3), (32, 4, 3), (64, 4, 2), (128, 8, 3), (32, 4, 4), (128, 8, 2)),
    *((64, 4, 4), (128, 4, 3), (64, 8, 3), (64, 8, 2), (32, 4, 2), (64, 2, 3), (32, 2, 3)),
    *((32, 2, 4), (128, 4, 1), (64, 4, 1), (32, 4, 5), (256, 8, 2), (16, 4, 4), (16, 2, 5)),
    *((32, 8, 3), (32, 8, 2), (64, 2, 2), (32, 1, 3), (16, 4, 3), (16, 8, 3)),
)

# rows, keys, warps, stages
PREFILL_TILES = (
    *((64, 64, 4, 3), (128, 64, 8, 3), (64, 32, 4, 3), (256, 64, 8, 3), (128, 64, 8, 2)),
    *((64, 64, 4, 2), (128, 64, 8, 4), (64, 128, 4, 2), (128, 128, 8, 3), (128, 64, 4, 3)),
    *((64, 32, 4, 4), (128, 32, 8, 3), (64, 32, 4, 2), (128, 128, 8, 2), (64, 128, 4, 3)),
    *((128, 32, 8, 4), (256, 64, 8, 2), (64, 64, 4, 4), (128, 32, 8, 2), (32, 64, 4, 3)),
    *((32, 64, 4, 2), (64, 64, 8, 2), (64, 64, 8, 3), (32, 32, 4, 3), (128, 64, 4, 2)),
    *((32, 128, 4, 2), (256, 32, 8, 3), (64, 128, 8, 2), (16, 64, 4, 3), (64, 16, 4, 4)),
    *((64, 32, 8, 1), (64, 64, 4, 1), (32, 64, 2, 3), (128, 16, 8, 4)),
    *((64, 32, 8, 2), (32, 32, 4, 2), (64, 64, 8, 1), (128, 32, 8, 1), (64, 32, 8, 3)),
)

# how a decode launch is cut: not at all, or until this many programs a unit run
CUTS: tuple[Changes, ...] = (
    {},
    {"min_programs": ALWAYS, "segments": 64, "fill": 2},
    {"min_programs": 0},
    {"min_programs": ALWAYS, "segments": 64, "fill": 4},
    {"min_programs": ALWAYS, "segments": 64, "fill": 1},
    {"min_programs": ALWAYS, "segments": 64, "fill": 8},
    {"min_programs": ALWAYS, "segments": 8, "fill": 8},
    {"min_programs": ALWAYS, "segments": 4, "fill": 8},
    {"min_programs": ALWAYS, "segments": 64, "fill": 4, "least_keys": 64},
)

# what of all this was fastest at one decode point or another of an H200, first of all; before the
# others stands what cuts finely: where the usual cut is as fast, it is so for a batch that happens
# to fill the device, and a batch of one more or less pays for it
_SMALL = {"decode.keys": 64, "decode.warps": 4, "decode.stages": 3}
_NARROW = {"decode.keys": 32, "decode.warps": 2, "decode.stages": 3}
_WIDE = {"decode.keys": 128, "decode.warps": 8, "decode.stages": 3}
_THIN = {"decode.keys": 32, "decode.warps": 4, "decode.stages": 3}
_WHOLE: Changes = {"min_programs": 0}
_FULL: Changes = {"min_programs": ALWAYS, "segments": 64, "fill": 4}
_FINE: Changes = {**_FULL, "least_keys": 64}
FASTEST: tuple[Changes, ...] = (
    *({**_SMALL, **_FINE}, {**_NARROW, **_FULL}),
    *(_SMALL, {**_SMALL, **_WHOLE}, _NARROW, {**_WIDE, **_WHOLE}, {**_NARROW, "decode.warps": 1}),
    *(_THIN, _WHOLE, _FINE, {**_NARROW, **_WHOLE}),
    *({**_THIN, **_FINE}, {**_THIN, **_WHOLE}, {**_THIN, **_FULL}),
    *({"decode.stages": 3}, {**_SMALL, "decode.stages": 4}, {**_SMALL, "decode.warps": 2}),
)

LIKELY = 7
"""Tiles of decode that are tried with every cut, and with a large block of the cache."""

CHUNK = 1024
"""Query tokens of a sequence up to which the decode kernel is tried on a chunk of prefill."""

LARGE_BLOCK = 128
"""The block of the cache that is tried beside the usual: as wide as a tile of keys, so that tensor
descriptors can read it."""


def paged_settings(
    work: Work, limits: Limits, base: Knobs | None = None, multiple: int = 16
) -> tuple[Setting, ...]:
    """Every launch that fits the device, the default first, each once. multiple: of a block."""
    device = Device(limits.arch, limits.units, limits.shared_memory_bytes)
    base = base or knobs_for(limits.arch)
    usual = flat(base)
    found: dict[tuple[int, Plan], Setting] = {}
    for page, changes in _tried(work, base, multiple):
        shape = shape_of(work, page)
        chosen = plan(shape, device, changed(base, changes))
        if (page, chosen) in found or not _is_asked(chosen, changes):
            continue
        if changes and not fits_tensor_memory(chosen, shape, limits.arch):
            continue
        knobs = {name: value for name, value in changes.items() if usual[name] != value}
        if page != work.page:
            knobs[BLOCK_SIZE] = page
        found[page, chosen] = Setting(knobs=knobs, effort=_effort(work, shape, chosen))
    return tuple(found.values())


def shape_of(work: Work, page: int) -> Shape:
    """What the launch of this work depends on."""
    layer = work.layer
    return Shape(
        tokens=work.batch * work.query,
        sequences=work.batch,
        heads=layer.heads or 1,
        kv_heads=layer.kv_heads or 1,
        width=layer.head_size or 16,
        value_width=layer.head_size_v or 16,
        page=page,
        item_bytes=item_bytes(layer),
        cache_bytes=max(1, int(cached_bytes(layer))),
        max_query_len=work.query,
        max_seq_len=work.context,
    )


def _tried(work: Work, base: Knobs, multiple: int) -> Iterator[tuple[int, Changes]]:
    """Block sizes and changes of knobs, the likely ones first."""
    yield work.page, {}
    # Hopper's own kernel has tiles of its own
    portable = {"groups": False} if base.groups else {}
    pages = [work.page]
    if work.layer.block_size is None and LARGE_BLOCK % multiple == 0 and work.page < LARGE_BLOCK:
        pages.append(LARGE_BLOCK)
    for page in pages:
        decoding = work.query <= base.split_queries
        if page == work.page or not decoding:
            yield page, {}
        if decoding:
            # on large blocks smaller tiles are safer choices than the default's, and stand first
            yield from ((page, changes) for changes in (*FASTEST, {}))
            yield from ((page, portable | changes) for changes in _as_prefill(work))
            yield from ((page, changes) for changes in _decode_changes(page != work.page))
        else:
            yield from ((page, portable | changes) for changes in _prefill_changes(work, page))
            yield from ((page, changes) for changes in _as_decode(work))


def _decode_changes(few: bool) -> Iterator[Changes]:
    """Tiles with the usual cut, then other cuts of the likely ones. few: not all of these."""
    tiles = [
        _tile("decode", keys=keys, warps=warps, stages=stages)
        for keys, warps, stages in DECODE_TILES
    ]
    yield from CUTS
    yield from tiles
    for cut in CUTS[1 : 4 if few else None]:
        yield from ({**tile, **cut} for tile in tiles[:LIKELY])
    if not few:
        yield from ({**tile, **cut} for cut in CUTS[1:6] for tile in tiles[LIKELY:])


def _prefill_changes(work: Work, page: int) -> Iterator[Changes]:
    for rows, keys, warps, stages in PREFILL_TILES:
        tile = _tile(_group(work), rows=rows, keys=keys, warps=warps, stages=stages)
        yield tile
        if page % keys == 0:
            yield {**tile, "descriptors": True}


def _as_prefill(work: Work) -> Iterator[Changes]:
    """The prefill kernel's tiles for a batch of few queries, the likely ones first.

    Many sequences are as many programs, and on wide blocks its copies beat the decode kernel's.
    """
    for rows, (keys, stages) in product((16, 32, 64), ((64, 3), (128, 2))):
        tile = _tile(_group(work), rows=rows, keys=keys, warps=4, stages=stages)
        yield {"split_queries": 0, **tile}


def _as_decode(work: Work) -> Iterator[Changes]:
    """The decode kernel, which can cut the keys, for a short chunk on a long context."""
    if work.query > CHUNK or work.context < 4 * work.query:
        return
    most = 1 << (work.query - 1).bit_length()
    for (keys, warps, stages), cut in product(DECODE_TILES[:8], CUTS[1:6]):
        tile = _tile("decode", keys=keys, warps=warps, stages=stages)
        yield {"split_queries": most, **tile, **cut}


def _group(work: Work) -> str:
    layer = work.layer
    widths = padded(layer.head_size or 16) + padded(layer.head_size_v or 16)
    return "wide" if widths > 256 else "prefill"


def _tile(group: str, **fields: int) -> Changes:
    return {f"{group}.{name}": value for name, value in fields.items()}


def _is_asked(chosen: Plan, changes: Changes) -> bool:
    """Whether the tile is the one that was asked for, and not one made smaller to fit."""
    group = "decode" if chosen.kernel == "decode" else None
    for name, value in changes.items():
        of, dot, field = name.partition(".")
        if not dot or (group is None and of == "decode") or (group == "decode" and of != group):
            continue
        if field == "keys" and chosen.tile != value:
            return False
        if field == "stages" and chosen.stages != value:
            return False
    return True


def _effort(work: Work, shape: Shape, chosen: Plan) -> Effort:
    """Operations with the rows that no query fills, bytes with the parts that are joined."""
    least = amounts(work)
    widths = padded(shape.width) + padded(shape.value_width)
    if chosen.kernel == "prefill":
        seen = seen_pairs(work) / max(1, work.query) + chosen.tile / 2
        tiles = chosen.query_tiles * shape.kv_heads * chosen.parts
        flops = 2.0 * tiles * chosen.rows * seen * widths
        return Effort(bytes=least.bytes, flops=flops, programs=tiles)
    tiles = shape.sequences * chosen.query_tiles * shape.kv_heads * chosen.parts
    flops = 2.0 * tiles * chosen.rows * kept_tokens(work) * widths
    again = max(0, chosen.query_tiles * chosen.parts - 1) * 0.1 * least.bytes
    moved = least.bytes + again
    if chosen.segments > 1:
        moved += 8.0 * shape.tokens * shape.heads * chosen.segments * (shape.value_width + 2)
    return Effort(bytes=moved, flops=flops, programs=tiles * chosen.segments)
