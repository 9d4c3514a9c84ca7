"""In which order, and how many at once, the plans of a run of smoke are run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from attnctl.side_by_side import side_by_side
from attnctl.smoke import Plan, run_plan
from attnctl.trials import Trial

Numbered = tuple[int, Plan]


def run_plans_here(
    plans: Sequence[Plan], timeout_s: float, children: int, *, twice: bool
) -> Iterator[tuple[int, Trial]]:
    """Each trial with its plan's place. What a GPU runs comes last, one plan after the other."""

    def trials(waiting: deque[Numbered]) -> Iterator[tuple[int, Trial]]:
        while waiting:
            try:
                place, one = waiting.popleft()
            except IndexError:  # another took the last one meanwhile
                return
            for trial in run_plan(one, timeout_s, twice=twice):
                yield place, trial

    side, alone = in_order(enumerate(plans))
    waiting = deque(side)
    yield from side_by_side([trials(waiting) for _ in range(min(children, len(side)))])
    yield from trials(deque(alone))


def in_order(plans: Iterable[Numbered]) -> tuple[list[Numbered], list[Numbered]]:
    """Plans that a processor runs, side by side and longest first, and those of a GPU.

    Interpreted cases take longer than all others; short plans last fill what is left.
    """
    numbered = list(plans)
    side = [x for x in numbered if x[1].device in ("cpu", "interpret")]
    side.sort(key=lambda x: (x[1].level != "interpret", -len(x[1].runnable)))
    return side, [x for x in numbered if x not in side]
