"""A whole tune on a fake device, as a process that a test kills: python -m tests.tune.slow_tune."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from attnctl.exits import AttnctlError
from attnctl.tune.exchange import Candidate, Verdict
from attnctl.tune.session import tune
from attnctl.tune.settings import Work
from attnctl.tune.workload import decode
from tests.tune.fake import FakeBench, Silent, request

LOADS = decode((1, 2, 4, 8, 16, 32), (256, 1024, 4096))


class SlowBench(FakeBench):
    """Takes some milliseconds a request, and writes down each point that it times."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def time(
        self, work: Work, candidates: Sequence[Candidate], rounds: int
    ) -> tuple[dict[str, list[float]], dict[str, Verdict]]:
        with self._log.open("a") as file:
            file.write(f"{work.batch} {work.context}\n")
        time.sleep(0.01)
        return super().time(work, candidates, rounds)


class Tell(Silent):
    """Says when a point is in the journal."""

    def step(self, step) -> None:
        print(f"done {step.task.load.batch} {step.task.load.context}", flush=True)


def main(output: str, log: str, resume: str) -> int:
    asked = request(Path(output), loads=LOADS, resume=resume == "resume")
    try:
        tune(asked, Tell(), SlowBench(Path(log)))
    except AttnctlError as error:
        print(error)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
