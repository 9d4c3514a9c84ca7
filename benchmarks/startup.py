"""Prints what each command costs as a whole process, as a ratio to `python -c pass`.

Both sides are the minimum over the same rounds, interleaved, so that a slow moment of the machine
hits them alike. The budgets are those of the project; the exit code is 1 where one is broken.

    python benchmarks/startup.py [ROUNDS]
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
MODEL = "examples/llama-3.1-8b.json"
# its groups of layers want blocks of different sizes, and what one size costs is worked out too
TWO_SIZES = "tests/models/gpt-oss-20b.json"
# what the console script does, whether or not it is installed
PROGRAM = (sys.executable, "-c", "from attnctl.__main__ import main; main()")


class Case(NamedTuple):
    """A command line, its budget as a ratio, and whether it believes to be on a terminal."""

    arguments: tuple[str, ...]
    budget: float
    terminal: bool = False


ON_ONE = ("select", "--model", MODEL, "--machine", "h200")
CASES = (
    Case(("--help",), 9.0),
    Case((*ON_ONE, "--json"), 10.0),
    Case(("select", "--model", TWO_SIZES, "--machine", "h200", "--json"), 10.0),
    Case(("probe", "--json"), 10.0),
    Case(("profile", "list", "--machine", "h200", "--json"), 10.0),
    Case(ON_ONE, 16.0, terminal=True),
    Case(("probe",), 16.0, terminal=True),
    Case(("list",), 16.0, terminal=True),
)


def seconds(command: list[str], terminal: bool = False) -> float:
    """Wall time of one process, whose output is read by nobody."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    # compiled files are part of an installed program
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if not terminal:
        start = time.perf_counter()
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
        return time.perf_counter() - start
    leader, follower = pty.openpty()
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=follower)
    os.close(follower)
    _drain(leader)
    process.wait()
    spent = time.perf_counter() - start
    os.close(leader)
    return spent


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 1 << 16):
            pass
    except OSError:  # the other side of a pseudo-terminal closed
        return


def measure(rounds: int) -> tuple[float, dict[Case, float]]:
    """Seconds of `python -c pass`, and of every case: minimum over the rounds."""
    bare = float("inf")
    best = dict.fromkeys(CASES, float("inf"))
    for _ in range(rounds):
        bare = min(bare, seconds([sys.executable, "-c", "pass"]))
        for case in CASES:
            best[case] = min(best[case], seconds([*PROGRAM, *case.arguments], case.terminal))
    return bare, best


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    bare, best = measure(rounds)
    print(f"python -c pass: {bare * 1e3:.1f} ms (minimum of {rounds})")
    broken = False
    for case, spent in best.items():
        ratio = spent / bare
        broken |= ratio > case.budget
        verdict = "over budget" if ratio > case.budget else "ok"
        where = " (terminal)" if case.terminal else ""
        print(
            f"{ratio:6.1f}x of {case.budget:4.0f}x  {spent * 1e3:6.1f} ms  {verdict:11}  "
            f"attnctl {' '.join(case.arguments)}{where}"
        )
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
