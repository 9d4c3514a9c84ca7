"""Whether Triton's interpreter works at all with the NumPy and the Python that are installed here.

Some releases do not go together: Triton 3.6 turns what bounds a loop into a number in a way that
NumPy 2.4 refuses. Then every kernel with such a loop fails, and none of them is at fault.
"""

from __future__ import annotations

import platform

import numpy
import torch
import triton
import triton.language as tl


@triton.jit
def _sum_rows_kernel(rows, count, out, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """out[0] is the sum of the first count[0] rows: a loop, masked loads, a reduction, a store."""
    lanes = tl.arange(0, LANES)
    total = tl.zeros([LANES], tl.float32)
    for row in range(tl.load(count)):
        total += tl.load(rows + row * WIDTH + lanes, mask=lanes < WIDTH, other=0.0)
    tl.store(out, tl.sum(total, 0))


def interpreter_fault() -> str:
    """What is wrong with the interpreter, in a sentence; "" where it computes what it should.

    Under TRITON_INTERPRET=1, set before triton is imported.
    """
    rows, count = torch.arange(15, dtype=torch.float32), torch.tensor([2], dtype=torch.int32)
    out = torch.full((1,), -1.0)
    try:
        _sum_rows_kernel[(1,)](rows, count, out, WIDTH=5, LANES=8)
    except Exception as error:  # whatever it is, the kernels to be tried are not its cause
        words = str(error).partition("\n")[0][:200]
        return _sentence(f"{type(error).__name__}: {words}")
    found = float(out)
    return "" if found == 45.0 else _sentence(f"a sum is {found:g} where it is 45")


def _sentence(what: str) -> str:
    return (
        f"the interpreter of Triton {triton.__version__} does not work with NumPy "
        f"{numpy.__version__} and Python {platform.python_version()} ({what}): install another "
        "version of Triton or NumPy; --device cuda or cpu leaves out what must be interpreted"
    )
