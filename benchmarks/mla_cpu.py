"""CPU_MLA and CPU_MLA_SPARSE against eager and compiled torch on one thread of this processor.

python benchmarks/mla_cpu.py [--rounds N] [--only TEXT] [--no-compile] [--threads N] [--json FILE]

The rivals take turns and each figure is the median of its rounds in processor time (wall time with
more threads than one). Torch is given the form that suits it: sequences of one length, gathered by
pages and batched, in float32 (its bfloat16 products crawl without AMX); SDPA with values padded to
the keys' width; torch.topk, which leaves ties open. `compiled` is the same function under
torch.compile, made for exactly these shapes. The ratio is to the fastest of them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from mla_problems import PROBLEMS, Problem, Rivals


def seconds(rivals: Rivals, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median seconds of each, the rivals taking turns."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(rounds + 1):
        for name, run in rivals.items():
            start = clock()
            run()
            if turn:
                times[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def check(name: str, rivals: Rivals) -> None:
    """Rivals that compute something else are no rivals."""
    ours = rivals["ours"]()
    for rival in rivals.values():
        other = rival()
        if ours.dtype is torch.int32:
            # float32 orders logits of almost the same size in its own way
            assert float((ours != other).float().mean()) < 0.05, name
        else:
            torch.testing.assert_close(ours.float(), other.float(), atol=3e-2, rtol=3e-2)


def measure(problem: Problem, arguments: argparse.Namespace) -> dict[str, object]:
    rivals = problem.rivals()
    if not arguments.no_compile:
        torch._dynamo.reset()
        rivals["compiled"] = problem.compiled()
    with torch.inference_mode():
        check(problem.name, rivals)
        clock = time.process_time if arguments.threads == 1 else time.perf_counter
        got = seconds(rivals, arguments.rounds, clock)
    ours = got["ours"]
    best = min((got[name], name) for name in got if name != "ours")
    line = f"{problem.name:44} {ours * 1e3:9.3f} ms {problem.flops / ours / 1e9:6.1f} GFLOP/s"
    line += "".join(f"  {name} x{got[name] / ours:.2f}" for name in got if name != "ours")
    print(line, flush=True)
    return {
        "name": problem.name,
        "ms": {name: round(value * 1e3, 4) for name, value in got.items()},
        "gflops": round(problem.flops / ours / 1e9, 1),
        "ratio": round(best[0] / ours, 3),
        "fastest_rival": best[1],
    }


def summary(rows: list[dict[str, object]]) -> dict[str, dict[str, float]]:
    """Geometric mean and worst ratio of each group (the name's first two words) and of all."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        ratio = float(str(row["ratio"]))
        for group in (" ".join(str(row["name"]).split()[:2]), "all"):
            groups.setdefault(group, []).append(ratio)
    return {
        name: {
            "geometric_mean": round(math.exp(statistics.fmean(map(math.log, ratios))), 3),
            "worst": min(ratios),
            "shapes": len(ratios),
        }
        for name, ratios in groups.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for make in PROBLEMS:
        if arguments.only in make.name:
            rows.append(measure(make.build(), arguments))
            if arguments.json:
                found = {"torch": torch.__version__, "threads": arguments.threads}
                found |= {"summary": summary(rows), "shapes": rows}
                arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    for name, figures in summary(rows).items():
        print(f"{name:24} {figures}")


if __name__ == "__main__":
    main()
