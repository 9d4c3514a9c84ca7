"""Compiles the paged-attention kernels for GPUs that are not here, and says what each became.

    python tools/cross_compile.py [--targets sm_90,gfx942] [--widths 64,128,256] [--jobs 2]

Exit code 1 where one does not compile, needs more shared memory than a block of the target has,
spills more than --spills, or multiplies without the matrix unit.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from attnctl.kernels.triton.crosscompile import (
    SHARED_MEMORY,
    CompileCase,
    Failure,
    Report,
    compile_in_child,
)

TARGETS = "sm_80,sm_90,sm_100,sm_120,gfx90a,gfx942,gfx950,gfx1100,gfx1201"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", default=TARGETS, help=f"of {','.join(SHARED_MEMORY)}")
    parser.add_argument("--widths", default="64,128,256")
    parser.add_argument("--kernels", default="prefill,decode,cache")
    parser.add_argument("--pages", default="16,128")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--spills", type=int, default=512, help="bytes, or registers on AMD")
    asked = parser.parse_args()
    # the page only decides whether prefill reads by descriptors
    jobs = [
        (CompileCase(kernel=kernel, width=int(width), page=int(page)), target)
        for target, width, kernel, page in product(
            asked.targets.split(","),
            asked.widths.split(","),
            asked.kernels.split(","),
            asked.pages.split(","),
        )
        if kernel == "prefill" or page == asked.pages.split(",")[0]
    ]
    with ThreadPoolExecutor(asked.jobs) as pool:
        outcomes = pool.map(lambda job: compile_in_child(*job), jobs)
        bad = 0
        for (case, target), outcome in zip(jobs, outcomes, strict=True):
            for line, good in lines(case, target, outcome, asked.spills):
                bad += not good
                print(("    " if good else "BAD ") + line, flush=True)
    print(f"{len(jobs)} compiled, {bad} bad")
    return 1 if bad else 0


def lines(
    case: CompileCase, target: str, outcome: tuple[Report, ...] | Failure, spills: int
) -> list[tuple[str, bool]]:
    """One line a launch, and whether it holds."""
    name = f"{target:8s} {case.kernel:8s} D{case.width:<4d} page {case.page:<4d}"
    if isinstance(outcome, Failure):
        return [(f"{name} {outcome.reason}", False)]
    return [
        (
            f"{name} {one.kernel:18s} shared {one.shared_bytes:6d} of {one.shared_limit_bytes} "
            f"registers {one.registers:3d} spills {one.spills:4d} {one.seconds:5.1f} s "
            f"{' '.join(one.matrix)}",
            one.faults(spills) == (),
        )
        for one in outcome
    ]


if __name__ == "__main__":
    sys.exit(main())
