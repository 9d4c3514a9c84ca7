"""Planted for a test of cross-compilation: a launch that is sound, and one for each fault."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import triton
import triton.language as tl

from attnctl.exits import InputError
from attnctl.tune.settings import Limits, Setting, Work
from faulty.reference import Reference


@triton.jit
def multiply_kernel(A, B, C, depth, ROWS: tl.constexpr, DEPTH: tl.constexpr):  # noqa: N803
    row = tl.arange(0, ROWS)
    inner = tl.arange(0, DEPTH)
    total = tl.zeros([ROWS, ROWS], tl.float32)
    for start in range(0, depth, DEPTH):
        a = tl.load(A + row[:, None] * depth + start + inner[None, :])
        b = tl.load(B + (start + inner)[:, None] * ROWS + row[None, :])
        total = tl.dot(a, b, acc=total)
    tl.store(C + row[:, None] * ROWS + row[None, :], total)


@triton.jit
def hoard_kernel(A, C, SIZE: tl.constexpr):  # noqa: N803
    """Holds every value until all are known."""
    place = tl.arange(0, SIZE)
    value = tl.load(A + place)
    total = tl.sum(value, 0)
    tl.store(C + place, value * total)


@triton.jit
def refuse_kernel(A):  # noqa: N803
    tl.static_assert(False, "no such kernel")


def tensor(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(1 << 20, dtype=dtype, device="meta")


class Miscompiles(Reference):
    """fault: one for any window; None for that of the case. programs: of a launch's grid."""

    def __init__(self, fault: int | None = None, programs: int = 1) -> None:
        self.fault, self.programs = fault, programs
        self.calls = 0

    def settings(self, work: Work, limits: Limits) -> tuple[Setting, ...]:
        """A grid of its own, which compiles to nothing of its own, and each fault that ends."""
        changes = [{}, {"programs": 2}, *({"fault": fault} for fault in (2, 5, 9))]
        return tuple(Setting(knobs=knobs) for knobs in changes)

    def with_knobs(self, knobs: Any, kernel: str = "") -> Miscompiles:
        return Miscompiles(**knobs)

    def write_cache(self, *_: Any) -> None:
        """Nothing: the cache is not what is planted."""

    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        half, total = tensor(torch.float16), tensor(torch.float32)
        fault = params.window if self.fault is None else self.fault
        if fault == 1:
            multiply_kernel[(self.programs,)](
                half, half, total, 4096, ROWS=64, DEPTH=64, num_warps=4
            )
        if fault == 2:  # four stages of two tiles of 64 KB
            multiply_kernel[(1,)](
                half, half, total, 4096, ROWS=128, DEPTH=256, num_warps=8, num_stages=5
            )
        if fault == 3:
            narrow = tensor(torch.float8_e4m3fn)
            multiply_kernel[(1,)](narrow, narrow, total, 4096, ROWS=64, DEPTH=64, num_warps=4)
        if fault == 4:
            hoard_kernel[(1,)](total, total, SIZE=1 << 15, num_warps=1)
        if fault == 5:
            refuse_kernel[(1,)](half)
        if fault == 6:
            os.abort()
        if fault == 7:
            time.sleep(600)
        if fault == 9:
            raise InputError("no launch for it")
        if fault == 10:  # sound in a process that did nothing before
            if self.calls:
                os.abort()
            multiply_kernel[(1,)](half, half, total, 4096, ROWS=64, DEPTH=64, num_warps=4)
        self.calls += 1
        return out


RUNTIME = Miscompiles()
