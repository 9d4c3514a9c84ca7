"""Which sizes of a cache make sense, said before anybody allocates it."""

from __future__ import annotations

from numbers import Integral

from attnctl.arguments import shown
from attnctl.kernels.batch_checks import refuse


def check_block_size(name: str, block_size: int, unit: int) -> None:
    """InputError: no multiple of what the kernels take; names the nearest that is."""
    if block_size < 1 or block_size % unit:
        nearest = max(unit, -(-block_size // unit) * unit)
        refuse(name, f"block_size must be a multiple of {unit}; it is {block_size}. Try {nearest}")


def check_sizes(name: str, block_size: int, unit: int, **sizes: int) -> None:
    """InputError: a size that is no positive integer, or a block size that kernels do not take."""
    for what, size in {**sizes, "block_size": block_size}.items():
        whole = isinstance(size, Integral) and not isinstance(size, bool)
        # a block size of 0 or less has its own sentence, which names the nearest that works
        if not whole or (size < 1 and what != "block_size"):
            refuse(name, f"{what} must be a positive integer; it is {shown(size)}")
    check_block_size(name, block_size, unit)
