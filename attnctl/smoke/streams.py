"""In which order, and how many at once, the plans of a run of smoke are run."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from attnctl.processes.side_by_side import side_by_side
from attnctl.smoke.planning import Plan, run_plan
from attnctl.smoke.trials import Ceiling, Trial

Numbered = tuple[int, Plan]

NOTHING: Mapping[str, Ceiling] = {}


def run_plans_here(
    plans: Sequence[Plan],
    timeout_s: float,
    children: int,
    *,
    twice: bool,
    ceilings: Mapping[str, Ceiling] = NOTHING,
) -> Iterator[tuple[int, Trial]]:
    """Each trial with its plan's place. What a GPU runs comes last, one plan after the other.

    ceilings: by device, of those whose kernels are timed; these run alone too.
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

    side, alone = in_order(enumerate(plans), ceilings)
    waiting = deque(side)
    yield from side_by_side([trials(waiting) for _ in range(min(children, len(side)))])
    yield from trials(deque(alone))


def in_order(
    plans: Iterable[Numbered], timed: Collection[str] = ()
) -> tuple[list[Numbered], list[Numbered]]:
    """Plans that a processor runs, side by side and longest first; those of a GPU and timed ones.

    Interpreted cases take longer than all others; short plans last fill what is left. timed: the
    devices whose kernels are, which anything beside them would slow.
    """
    numbered = list(plans)
    side = [x for x in numbered if x[1].device in ("cpu", "interpret") and x[1].device not in timed]
    side.sort(key=lambda x: (x[1].level != "interpret", -len(x[1].runnable)))
    return side, [x for x in numbered if x not in side]
