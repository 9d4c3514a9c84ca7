"""Compiles plans in several children at once, a target at a time each. Imports no torch.

A target's cases share what its compiler has done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import msgspec

from attnctl.processes.child import Worker
from attnctl.processes.side_by_side import side_by_side
from attnctl.smoke.planning import Plan
from attnctl.smoke.trials import Ready, Trial
from attnctl.smoke.workers import answers

MODULE = "attnctl.compiling.worker"

# a plan's place in the run, what its lines begin with, and a case
Job = tuple[int, str, str]


def run_plans(
    plans: Sequence[Plan],
    timeout_s: float,
    children: int,
    ready: Callable[[Ready], None],
) -> Iterator[tuple[int, Trial]]:
    """(place of the plan, trial) for every case of every plan, as they end."""
    for place, plan in enumerate(plans):
        yield from ((place, trial) for trial in plan.refused)
    groups = deque(_groups(plans))
    children = min(children, len(groups))
    yield from side_by_side([_serve(groups, timeout_s, ready) for _ in range(children)])


def _groups(plans: Sequence[Plan]) -> Iterator[list[Job]]:
    """The cases of each target."""
    targets: dict[str, list[Job]] = {}
    for place, plan in enumerate(plans):
        jobs = targets.setdefault(plan.device, [])
        words = f"{plan.backend} {plan.device} {plan.most_spills_bytes or 0}"
        jobs += [(place, words, text) for text in plan.runnable]
    return (jobs for jobs in targets.values() if jobs)


def _serve(
    groups: deque[list[Job]],
    timeout_s: float,
    ready: Callable[[Ready], None],
) -> Iterator[tuple[int, Trial]]:
    """The trials of one child's share: it takes the next target when it is done with one."""
    asked: deque[Job] = deque()

    def lines() -> Iterator[str]:
        while groups:
            try:
                jobs = groups.popleft()
            except IndexError:  # the last was taken meanwhile
                return
            for job in jobs:
                asked.append(job)
                yield f"{job[1]} {job[2]}"

    def make() -> Worker:
        return Worker(module=MODULE)

    for trial in answers(make, lines(), timeout_s, ready):
        place, _, text = asked.popleft()
        yield place, msgspec.structs.replace(trial, case=text)
