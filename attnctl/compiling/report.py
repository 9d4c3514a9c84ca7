"""What one launch compiled to, and whether a device would run it as its author meant."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
"""Figures of a report: one that is negative, or far beyond what any device has, is a slip of its
file, and nothing is compared with it."""
OnChip = Annotated[int, msgspec.Meta(ge=0, le=1 << 30)]
"""Registers, or bytes of what a launch has to itself: thousands of times what any GPU has."""

MOST_SPILLS_BYTES = 512
"""Bytes of registers that a thread may spill, unless the user says otherwise."""

NO_LAUNCH = "launches no Triton kernel, so that nothing was compiled"
"""The fault of a case that compiles nothing: it proves nothing."""

_FP8_PRODUCT = re.compile(r"e4m3|e5m2|f8f6f4|fp8|bf8")


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of a case, compiled.

    variant: its constants, so that two launches of one kernel are told apart. spills_bytes: what a
    thread stores to memory for want of registers. products: operand types of the products that the
    kernel asks for ("bf16", "f8E4M3FN"; exact float32 products, which no matrix unit offers
    everywhere, are left out). matrix: the matrix instructions found, without duplicates.
    """

    kernel: str
    variant: str
    shared_bytes: OnChip
    shared_limit_bytes: OnChip
    registers: OnChip
    spills_bytes: OnChip
    products: tuple[str, ...] = ()
    matrix: tuple[str, ...] = ()
    seconds: Amount = 0.0

    def faults(self, most_spills_bytes: int = MOST_SPILLS_BYTES) -> tuple[str, ...]:
        """Why this would not load, would crawl or would compute otherwise; empty: it is well."""
        found = []
        if self.shared_bytes > self.shared_limit_bytes:
            have = self.shared_limit_bytes
            found.append(f"needs {self.shared_bytes} bytes of shared memory, a block has {have}")
        if self.spills_bytes > most_spills_bytes:
            found.append(f"spills {self.spills_bytes} bytes, at most {most_spills_bytes} may be")
        if self.products and not self.matrix:
            found.append(f"multiplies {', '.join(self.products)} without the matrix unit")
        elif any(product.startswith("f8") for product in self.products) and not self.has_fp8:
            used = ", ".join(self.matrix)
            found.append(f"its FP8 products are silently up-cast: it uses {used}")
        return tuple(found)

    @property
    def has_fp8(self) -> bool:
        """Whether some matrix instruction multiplies FP8 numbers."""
        return any(_FP8_PRODUCT.search(name) for name in self.matrix)
