"""Times what a call of a state backend costs the host: the compiled kernel is a function that
returns.

    PYTHONPATH=. python benchmarks/state_overhead.py

One decode batch of 16 sequences on the processor, and of GDN_ATTN one under verification.
Microseconds a call, the least of many rounds; without `out` the output is allocated. The exit code
is 1 where forward with `out` takes more than its limit.
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
ROUNDS, CALLS = 60, 100
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


def main() -> int:
    torch.set_num_threads(1)
    print(f"{'':28}{'forward':>10}{'no out':>10}{'build':>10}{'first':>10}   (us)")
    slowest = 0.0
    for shape in SHAPES:
        problem = Problem(shape)
        without_kernel(problem)
        inputs, state, runtime = problem.inputs, problem.state, problem.runtime
        metadata = problem.metadata()
        ones = torch.ones(shape.batch, dtype=torch.int32)
        given = (problem.starts, problem.slots, ones)
        named = {
            "max_query_len": shape.queries,
            "num_accepted": metadata.num_accepted,
            "speculative": metadata.speculative,
            "num_spec": shape.drafts,
        }

        def build() -> object:
            return runtime.build_metadata(*given, **named)

        def first() -> object:
            return runtime.forward(inputs, state, build(), problem.out)

        forward = least_us(lambda: runtime.forward(inputs, state, metadata, problem.out))
        slowest = max(slowest, forward)
        built = least_us(build)
        print(
            f"{shape.op + ', ' + shape.name:28}{forward:10.1f}"
            f"{least_us(lambda: runtime.forward(inputs, state, metadata)):10.1f}"
            f"{built:10.1f}{least_us(first) - built:10.1f}"
        )
    return int(slowest > LIMIT_US)


if __name__ == "__main__":
    sys.exit(main())
