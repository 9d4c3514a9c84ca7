"""Runs the self-test in a child process, and what it found. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from attnctl.exits import Exit
from attnctl.processes.child import Worker
from attnctl.processes.unwinding import ended_by_signals
from attnctl.selftest.faults import FAULTS, Fault
from attnctl.smoke.trials import Status, Trial
from attnctl.smoke.workers import answers

LIMIT_S = 120.0
HANG_S = 5.0
ENDINGS: dict[str, Status] = {"crashes": "crashed", "hangs": "timeout"}
"""Faults that are caught by how the child ends."""


class Caught(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. by: what the judgement said of it, or why it was not caught."""

    name: str
    what: str
    caught: bool
    by: str
    cases: tuple[str, ...]
    seconds: float = 0.0


class SelfTest(msgspec.Struct, frozen=True, kw_only=True):
    """exit_code: 0 where every planted fault was caught, else 1."""

    schema: str = "attnctl.self-test/1"
    faults: tuple[Caught, ...]
    exit_code: int

    @property
    def caught(self) -> int:
        return sum(one.caught for one in self.faults)


def self_test(
    faults: Sequence[Fault] = FAULTS,
    told: Callable[[Caught], None] = lambda caught: None,
    worker: str = "attnctl.selftest.worker",
) -> SelfTest:
    """Plants every fault and judges it. told: hears of each as it is done."""
    found = []
    with ended_by_signals():
        for hangs in (False, True):
            some = [one for one in faults if (ENDINGS.get(one.name) == "timeout") is hangs]
            limit = HANG_S if hangs else LIMIT_S
            lines = [msgspec.json.encode(one).decode() for one in some]
            trials = answers(lambda: Worker(module=worker), lines, limit)
            for one, trial in zip(some, trials, strict=True):
                found.append(_caught(one, trial))
                told(found[-1])
    whole = bool(found) and all(one.caught for one in found)
    return SelfTest(faults=tuple(found), exit_code=Exit.OK if whole else Exit.NO)


def _caught(fault: Fault, trial: Trial) -> Caught:
    wanted = ENDINGS.get(fault.name, "pass")
    caught = trial.status == wanted
    how = trial.detail if trial.status == "pass" else f"{trial.status}: {trial.detail}"
    return Caught(
        name=fault.name,
        what=fault.what,
        caught=caught,
        by=how,
        cases=fault.cases,
        seconds=trial.seconds,
    )
