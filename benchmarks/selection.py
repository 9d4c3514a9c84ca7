"""Decisions per second: every model of the tests on every bundled machine, in one process.

    python benchmarks/selection.py [--rounds 5] [--at-least 2000]

Reading the files is not counted, since a sweep reads each once. Seconds are of processor time: the
sweep is one thread, and neighbours on the machine do not count. Prints the rate of each round and
exits 1 where the best is below --at-least.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from attnctl import machines
from attnctl.layer import Options
from attnctl.machine import Machine
from attnctl.machines.assumed import assume
from attnctl.model import ModelSpec, read_model
from attnctl.registry import Registry, load
from attnctl.select import select_model
from attnctl.selection.memo import Memo

MODELS = Path(__file__).parent.parent / "tests" / "models"


def sweep(specs: list[ModelSpec], boxes: list[Machine], registry: Registry) -> tuple[int, float]:
    """(decisions, seconds) of every model on every machine, with a fresh memo."""
    memo, options = Memo(), Options()
    start = time.process_time()
    decisions = sum(
        len(select_model(spec, box, registry, options, memo=memo))
        for box in boxes
        for spec in specs
    )
    return decisions, time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at-least", type=float, default=2000.0, help="decisions per second")
    arguments = parser.parse_args()
    registry = load()
    specs = [read_model(path) for path in sorted(MODELS.glob("*.json"))]
    boxes = [assume(machines.load(name), None, registry).machine for name in machines.names()]
    print(f"{len(specs)} models x {len(boxes)} machines, {len(registry.backends)} backends")
    best = 0.0
    for _ in range(arguments.rounds):
        decisions, seconds = sweep(specs, boxes, registry)
        best = max(best, decisions / seconds)
        print(f"{decisions} decisions in {seconds:.3f} s: {decisions / seconds:.0f} per second")
    print(f"best {best:.0f} per second, wanted {arguments.at_least:.0f}")
    return 0 if best >= arguments.at_least else 1


if __name__ == "__main__":
    raise SystemExit(main())
