"""Prints how many decisions a second one process makes: every test model on every bundled machine.

A decision is one group of layers on one machine, with every candidate and every finding. The budget
is 2,000 a second; the exit code is 1 below it.

    python benchmarks/decisions.py [ROUNDS]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from attnctl import machines
from attnctl.assume import assume
from attnctl.layer import Options
from attnctl.memo import Memo
from attnctl.model import read_model
from attnctl.registry import load
from attnctl.select import select_model

ROOT = Path(__file__).parent.parent
BUDGET_PER_SECOND = 2000


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    registry = load()
    specs = [read_model(str(path)) for path in sorted((ROOT / "tests" / "models").glob("*.json"))]
    fleet = [assume(machines.load(name), None, registry).machine for name in machines.names()]
    best = 0.0
    for _ in range(rounds):
        memo, count, start = Memo(), 0, time.perf_counter()
        for machine in fleet:
            for spec in specs:
                count += len(select_model(spec, machine, registry, Options(), memo=memo))
        best = max(best, count / (time.perf_counter() - start))
    print(
        f"{len(specs)} models x {len(fleet)} machines: {best:,.0f} decisions/s (best of {rounds})"
    )
    return int(best < BUDGET_PER_SECOND)


if __name__ == "__main__":
    sys.exit(main())
