"""Times of calls on a processor that others may use too, and what a floor is made of there."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from attnctl.kernels.cpu.build import build

TRIES = 6
LONG_S = 0.06  # a call of that length never has a core of its own there


def plain_library() -> ctypes.CDLL:
    built = build(Path(__file__).with_name("read.cpp"), ("-march=native",), dict(os.environ))
    if built.path is None:
        raise SystemExit(built.finding.found)
    return ctypes.CDLL(built.path)


class Products:
    """GFLOP/s of one thread whose products are of registers, and the best that was seen so far."""

    def __init__(self) -> None:
        self._function = plain_library().plain_products
        self._function.argtypes = [ctypes.c_longlong]
        self._function.restype = ctypes.c_longlong
        self.best = 0.0
        for _ in range(20):
            self.undisturbed(200_000)

    def undisturbed(self, count: int = 20_000) -> bool:
        """Whether the core is this thread's alone, by the rate of some products now."""
        start = time.process_time()
        done = self._function(count)
        rate = done / max(time.process_time() - start, 1e-9) / 1e9
        if count >= 200_000:
            self.best = max(self.best, rate)
        return rate > 0.95 * self.best


def plain_read() -> Callable[[Tensor], None]:
    """Reads every byte of a tensor with all threads."""
    function = plain_library().plain_read
    function.argtypes = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int]

    def run(tensor: Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        function(tensor.data_ptr(), size, torch.get_num_threads())

    return run


def timed(run: Callable[[], object], products: Products | None) -> float:
    """Seconds of one call, made again where another thread took a part of the core."""
    if products is None:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    taken = []
    for _ in range(TRIES):
        alone = products.undisturbed()
        start = time.process_time()
        run()
        taken.append(max(time.process_time() - start, 1e-9))
        if (products.undisturbed() and alone) or taken[-1] > LONG_S:
            return taken[-1]
    return min(taken)
