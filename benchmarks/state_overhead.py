"""Times what a call of a state backend costs the host: the compiled kernel is a function that
returns.

    PYTHONPATH=. python benchmarks/state_overhead.py

One decode batch of 16 sequences on the processor, and of GDN_ATTN one under verification.
Microseconds a call, the least of many rounds: forward into `out`, with an output of its own,
build_metadata, and what the first layer of a batch takes, which looks at it. The exit code is 1
where forward into `out` takes more than its limit.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.states_problems import Problem, Shape

LIMIT_US = 25.0
ROUNDS, CALLS = 300, 20
SHAPES = (
    Shape("gdn", "decode B=16", 16, 1),
    Shape("gdn", "KDA decode B=16", 16, 1, kda=True),
    Shape("gdn", "verify B=16 K=3", 16, 4, 3),
    Shape("mamba1", "decode B=16", 16, 1),
    Shape("mamba2", "decode B=16", 16, 1),
    Shape("linear", "decode B=16", 16, 1),
    Shape("short_conv", "decode B=16", 16, 1),
)


def least_us(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - start)
    return best / CALLS * 1e6


def without_kernel(problem: Problem) -> None:
    """InputError and warnings as of a first call; what computes then does nothing."""
    problem.ours()()
    native = problem.runtime._opened[0]
    if native is None:
        raise SystemExit("there is no compiler here, and so no call of compiled kernels")
    native._functions = dict.fromkeys(native._functions, lambda arguments: 0)


def costs(shape: Shape) -> tuple[float, float, float, float]:
    """Of forward with `out` and without, of build_metadata, and of the first layer of a batch."""
    problem = Problem(shape)
    without_kernel(problem)
    inputs, state, runtime, out = problem.inputs, problem.state, problem.runtime, problem.out
    metadata = problem.metadata()
    given = (problem.starts, problem.slots, torch.ones(shape.batch, dtype=torch.int32))
    named = {
        "max_query_len": shape.queries,
        "num_accepted": metadata.num_accepted,
        "speculative": metadata.speculative,
        "num_spec": shape.drafts,
    }
    built = least_us(lambda: runtime.build_metadata(*given, **named))
    first = least_us(
        lambda: runtime.forward(inputs, state, runtime.build_metadata(*given, **named), out)
    )
    return (
        least_us(lambda: runtime.forward(inputs, state, metadata, out)),
        least_us(lambda: runtime.forward(inputs, state, metadata)),
        built,
        first - built,
    )


def main() -> int:
    torch.set_num_threads(1)
    print(f"{'us':28}{'forward':>10}{'no out':>10}{'build':>10}{'first':>10}")
    slowest = 0.0
    for shape in SHAPES:
        found = costs(shape)
        slowest = max(slowest, found[0])
        print(f"{shape.op + ', ' + shape.name:28}" + "".join(f"{x:10.1f}" for x in found))
    return int(slowest > LIMIT_US)


if __name__ == "__main__":
    sys.exit(main())
