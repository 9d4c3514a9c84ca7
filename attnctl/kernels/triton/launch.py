"""A kernel's launch, the device and the tiles it is for, and what a width takes in a tile."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

LOG2E = 1.4426950408889634


class Device(msgspec.Struct, frozen=True):
    """arch as triton names it (sm_90, gfx942), compute units, shared memory of one block."""

    arch: str
    units: int
    shared_memory_bytes: int


class Tiles(msgspec.Struct, frozen=True):
    """rows of a query tile (query tokens x heads of a group), keys of a tile, warps, stages."""

    rows: int
    keys: int
    warps: int
    stages: int


class Launch(NamedTuple):
    """One kernel launch: what stands in the brackets and the parentheses."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


@lru_cache(maxsize=256)
def split_width(width: int) -> tuple[int, int]:
    """A width as a low and a high power of two: (128, 64) for 192; high 0 where it saves nothing.

    The matrix unit's products are at least 16 deep.
    """
    whole = power(width)
    low = whole // 2
    high = power(width - low) if width > low else 0
    if low < 16 or high == 0 or low + high >= whole:
        return whole, 0
    return low, high


@lru_cache(maxsize=256)
def padded(width: int) -> int:
    """The columns that a width takes in a tile."""
    return sum(split_width(width))


def power(number: int, least: int = 16) -> int:
    """The next power of two, at least what the matrix unit takes."""
    return max(least, 1 << max(number - 1, 0).bit_length())
