"""Compiles what stands around a library's kernel, which no case of a bundled backend launches.

`python -m tests.compiling.around sm_90,gfx942` in a process of its own: one JSON line a launch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from attnctl.compiling.compiler import Compiler
from attnctl.compiling.targets import read_targets
from attnctl.kernels.triton.launch import Launch


def tensor(*sizes: int, dtype: str = "int32") -> Any:
    import torch

    return torch.empty(sizes, dtype=getattr(torch, dtype), device="meta")


def launches() -> Iterator[Launch]:
    """DeepSeek's 128 heads and 2048 slots, with and without a log-sum-exp and empty lists."""
    from attnctl.kernels.triton.latent.settle_rows import name_launch, settle_launch

    slots, count, starts = tensor(8, 2048), tensor(8), tensor(9)
    out, lse = tensor(8, 128, 512, dtype="bfloat16"), tensor(8, 128, dtype="float32")
    yield name_launch(slots, 4096, slots, count)
    yield settle_launch(out, lse, out, lse, starts, count, 1.0)
    yield settle_launch(out, None, out, None, starts, None, 0.5)


def main(targets: str) -> None:
    for machine in read_targets(targets):
        compiler = Compiler(machine)
        for launch in launches():
            print(msgspec.json.encode(compiler.compile(launch)).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
