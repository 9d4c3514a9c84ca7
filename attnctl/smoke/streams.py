"""In which order, and how many at once, the plans of a run of smoke are run."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from attnctl.machine import Machine, visible_gpus
from attnctl.processes.side_by_side import side_by_side
from attnctl.smoke.planning import Plan, run_plan
from attnctl.smoke.trials import Ceiling, Trial

Numbered = tuple[int, Plan]

PROCESSORS = ("cpu", "interpret")

EXCLUSIVE = "nvidia.exclusive_process"
"""The finding of a GPU that one process at a time may use."""

NOTHING: Mapping[str, Ceiling] = {}

PART = 32
"""Cases that a GPU's worker is given at once: a start takes seconds, a case that compiles, too."""

WORKER_BYTES = 16 << 30
"""What a worker may take of a GPU's memory: torch's own, and a case with blocks far apart."""


class Streams(msgspec.Struct, frozen=True):
    """How many workers run at once: of those that a processor runs, and of a GPU's."""

    side: int = 1
    gpu: int = 1


def streams_of(machine: Machine, children: int) -> Streams:
    """As many workers as there may be children, and of a GPU's no more than its memory bears.

    One at a time where the memory is not known, or where a GPU takes one process only.
    """
    memories = [one.memory.free_bytes or one.memory.total_bytes for one in visible_gpus(machine)]
    bears = min((0 if one is None else one // WORKER_BYTES for one in memories), default=0)
    if any(found.code == EXCLUSIVE for found in machine.findings):
        bears = 1
    return Streams(children, max(1, min(children, bears)))


def run_plans_here(
    plans: Sequence[Plan],
    timeout_s: float,
    streams: Streams,
    *,
    twice: bool,
    ceilings: Mapping[str, Ceiling] = NOTHING,
) -> Iterator[tuple[int, Trial]]:
    """Each trial with its plan's place: first of what a processor runs, then of what a GPU runs.

    ceilings: by device, of those whose kernels are timed; these run alone, at the end.
    """

    def trials(waiting: deque[Numbered]) -> Iterator[tuple[int, Trial]]:
        while waiting:
            try:
                place, one = waiting.popleft()
            except IndexError:  # another took the last one meanwhile
                return
            ceiling = ceilings.get(one.device)
            cache = None if ceiling is None else ceiling.cache_bytes
            for trial in run_plan(one, timeout_s, twice=twice, cache_bytes=cache):
                yield place, trial

    def at_once(waiting: deque[Numbered], most: int) -> Iterator[tuple[int, Trial]]:
        return side_by_side([trials(waiting) for _ in range(min(most, len(waiting)))])

    side, gpu, alone = in_order(enumerate(plans), ceilings)
    yield from at_once(deque(side), streams.side)
    yield from at_once(deque(gpu), streams.gpu)
    yield from trials(deque(alone))


def in_order(
    plans: Iterable[Numbered], timed: Collection[str] = ()
) -> tuple[list[Numbered], list[Numbered], list[Numbered]]:
    """Plans that a processor runs, longest first; parts of those that a GPU runs; timed ones.

    Interpreted cases take longer than all others; short plans last fill what is left. timed: the
    devices whose kernels are, which anything beside them would slow.
    """
    numbered = list(plans)
    alone = [x for x in numbered if x[1].device in timed]
    side = [x for x in numbered if x[1].device in PROCESSORS and x not in alone]
    side.sort(key=lambda x: (x[1].level != "interpret", -len(x[1].runnable)))
    gpu = [x for x in numbered if x not in side and x not in alone]
    gpu.sort(key=lambda x: -len(x[1].runnable))
    return side, [(place, part) for place, one in gpu for part in parts(one)], alone


def parts(plan: Plan) -> Iterator[Plan]:
    """The plan in parts of PART cases and fewer; what is refused is in the first."""
    yield msgspec.structs.replace(plan, runnable=plan.runnable[:PART])
    for first in range(PART, len(plan.runnable), PART):
        some = plan.runnable[first : first + PART]
        yield msgspec.structs.replace(plan, runnable=some, refused=())


def as_planned(plan: Plan, trials: Iterable[Trial]) -> list[Trial]:
    """The trials in the order of the plan, whichever of its parts ended first."""
    texts = (*(one.case for one in plan.refused), *plan.runnable)
    places = {text: place for place, text in reversed(list(enumerate(texts)))}
    return sorted(trials, key=lambda one: places.get(one.case, len(texts)))
