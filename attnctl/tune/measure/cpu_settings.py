"""The settings of the C++ paged kernel that a tune tries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from attnctl.tune.settings import BLOCK_SIZE, Knobs, Limits, Setting, Work

BLOCKS = (32, 64, 128, 256)
"""Sizes of the cache's blocks that are tried beside the usual."""

BLOCK_ROWS = (24, 48, 96, 144, 192, 288, 512)
DIRECT_ROWS = 16
TILED_FROM = 8
"""Rows of bfloat16 above which AMX multiplies tiles: DIRECT_IN_TILES in paged.cpp."""


def cpu_settings(work: Work, limits: Limits) -> tuple[Setting, ...]:
    """The default first, each once."""
    found: dict[tuple[tuple[str, object], ...], Setting] = {}
    blocks = [work.page]
    if work.layer.block_size is None:
        blocks += [block for block in BLOCKS if block != work.page]
    for block, knobs in product(blocks, _knobs(work, limits)):
        whole = {**knobs, BLOCK_SIZE: block} if block != work.page else knobs
        found.setdefault(tuple(sorted(whole.items())), Setting(knobs=whole))
    return tuple(found.values())


def _knobs(work: Work, limits: Limits) -> Iterator[Knobs]:
    threads = _threads(limits.threads)
    for count in threads:
        yield from ({**_of(count), **cut} for cut in _cuts(count or limits.threads))
    for count in threads:
        yield from ({**_of(count), **rows} for rows in _rows(work))


def _threads(most: int) -> list[int]:
    """0 is all of them, the default; then halves."""
    counts, count = [0], most // 2
    while count >= 1:
        counts.append(count)
        count //= 2
    return counts


def _of(count: int) -> Knobs:
    return {"threads": count} if count else {}


def _cuts(threads: int) -> Iterator[Knobs]:
    yield {}
    if threads > 1:
        for parts in (1, 2, 8):
            yield {"parts": parts}
        for parts in (2, 8):
            yield {"parts": parts, "least_tokens": 64}


def _rows(work: Work) -> Iterator[Knobs]:
    """How many query rows run at a time: by packing, or reading the keys where they are."""
    layer = work.layer
    rows = work.query * ((layer.heads or 1) // (layer.kv_heads or 1))
    if rows <= DIRECT_ROWS:
        yield {"direct_rows": 0}
        if rows > TILED_FROM:
            yield {"direct_rows": DIRECT_ROWS}
        return
    for block in BLOCK_ROWS:
        if block < 2 * rows:
            yield {"block_rows": block}
