"""Points between those of a grid, where its settings do not serve each other. No torch.

What is fastest at one point may lose at the next: how many rounds of programs fill a device depends
on the exact batch. In the middle of four neighbours one of which does not do with another's setting
a point is added, and the settings that were good around it are timed there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec

from attnctl.tune.exchange import Bench, Candidate
from attnctl.tune.finals import TIE, Final, Measured
from attnctl.tune.journal import Journal
from attnctl.tune.pages import best_page, tie_of
from attnctl.tune.run import Step, run_tasks
from attnctl.tune.search import Judge, tune_point
from attnctl.tune.tasks import Task

SHARE = 0.3
"""The share of a budget that is left for these points."""

GOOD = math.log(1.1)
"""What a setting may lose at a neighbour, as a logarithm, and be timed in the middle."""

MOST = 8
"""Settings that are timed in the middle, beside the best of each backend."""

Costs = dict[str, float]
"""By candidate, how much longer it takes than the point's fastest, as a logarithm."""


class Middle(msgspec.Struct, frozen=True):
    """A point to add. loss: what a neighbour's setting costs at another; keys: what is tried."""

    task: Task
    loss: float
    keys: tuple[str, ...]
    page: int


def run_refined(
    tasks: Sequence[Task],
    bench: Bench,
    journal: Journal,
    *,
    budget_s: float | None,
    told: Callable[[Step], None] = lambda step: None,
) -> tuple[tuple[Task, ...], dict[str, Measured]]:
    """The tasks with those that were added, and what was measured, by the task's key.

    budget_s: for all of them; the costliest gaps are filled first, and what a time that ends leaves
    out is not added. None fills all.
    """
    begin = time.monotonic()
    first = None if budget_s is None else (1 - SHARE) * budget_s
    measured = run_tasks(tasks, bench, journal, budget_s=first, told=told)
    found = middles(tasks, measured, tie_of(bench.site()))
    judge = Judge(journal.verdicts, journal.judged)
    added = []
    for number, one in enumerate(found):
        task, started = one.task, time.monotonic()
        done = journal.measured.get(task.key)
        if done is None:
            share = None
            if budget_s is not None:
                rest_s = begin + budget_s - started
                if rest_s <= 0:
                    break
                share = rest_s / (len(found) - number)
            done = tune_point(
                task, bench, judge, budget_s=share, hints=one.keys, page=one.page, few=True
            )
            journal.finished(task.key, done, time.monotonic() - started)
        added.append(task)
        measured[task.key] = done
        left_s = None if budget_s is None else max(0.0, begin + budget_s - time.monotonic())
        told(Step(len(tasks) + number + 1, len(tasks) + len(found), task, done, left_s))
    return (*tasks, *added), measured


def middles(tasks: Sequence[Task], measured: dict[str, Measured], tie: float) -> list[Middle]:
    """The points to add to each layer shape's decode, what costs most first."""
    shapes: dict[tuple[str, int], list[Task]] = {}
    for task in tasks:
        if task.load.phase == "decode" and not task.layer.group.is_ssm and task.key in measured:
            shapes.setdefault((task.shape_key, task.load.query), []).append(task)
    found = []
    for (shape, _), own in shapes.items():
        page = best_page([one for one in measured.values() if one.shape_key == shape], tie)
        if page is not None:
            found += _of_shape(own, measured, page)
    return sorted(found, key=lambda one: -one.loss)


def _of_shape(tasks: Sequence[Task], measured: dict[str, Measured], page: int) -> list[Middle]:
    by_place = {(task.load.batch, task.load.context): task for task in tasks}
    costs = {place: _costs(measured[task.key], page) for place, task in by_place.items()}
    found = []
    for corners in _cells(list(by_place)):
        around = [costs[place] for place in corners]
        loss = max((_loss(one, other) for one in around for other in around), default=0.0)
        middle = _middle(corners)
        if loss <= math.log(TIE) or middle in corners or middle in by_place:
            continue
        task = by_place[corners[0]]
        weight = min(by_place[place].load.weight for place in corners)
        batch, context = middle
        load = msgspec.structs.replace(task.load, batch=batch, context=context, weight=weight)
        added = msgspec.structs.replace(task, load=load)
        found.append(Middle(added, loss, _tried(around), page))
    return found


def _cells(places: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Four neighbours each: batches that follow one another at one of two contexts that do."""
    seen = set()
    contexts = sorted({context for _, context in places})
    for context in contexts:
        row = sorted(batch for batch, at in places if at == context)
        for low, high in pairwise(row):
            both = [at for at in contexts if {(low, at), (high, at)} <= set(places)]
            here = both.index(context)
            for other in (*both[max(0, here - 1) : here], *both[here + 1 : here + 2]):
                short, long = sorted((context, other))
                cell = ((low, short), (high, short), (low, long), (high, long))
                if cell not in seen:
                    seen.add(cell)
                    yield cell


def _middle(corners: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """In log space, as a profile's reader measures."""
    (low, short), (high, long) = corners[0], corners[-1]
    return round(math.sqrt(low * high)), round(math.sqrt(short * long))


def _costs(point: Measured, page: int) -> Costs:
    times = {
        candidate_key(one): one.median_us
        for one in (*point.finals, *point.dropped)
        if one.page == page
    }
    least = min(times.values(), default=1.0)
    return {key: math.log(time / least) for key, time in times.items()}


def _loss(one: Costs, other: Costs) -> float:
    """What the one point's fastest costs at the other, 0 where it was not timed there."""
    return other.get(min(one, key=one.__getitem__), 0.0) if one else 0.0


def _tried(around: Sequence[Costs]) -> tuple[str, ...]:
    """What is good at a corner, the best over all of them first; of each backend one at least."""
    keys = dict.fromkeys(key for costs in around for key in costs)
    mean = {}
    for key in keys:
        known = [costs[key] for costs in around if key in costs]
        mean[key] = sum(known) / len(known)
    ranked = sorted(keys, key=mean.__getitem__)
    good = [key for key in ranked if any(costs.get(key, math.inf) <= GOOD for costs in around)]
    kept = dict.fromkeys(good[:MOST])
    # the winner of a corner, whatever it costs at the others
    kept |= dict.fromkeys(min(costs, key=costs.__getitem__) for costs in around if costs)
    backends = {key.partition("/")[0]: key for key in reversed(ranked)}
    return tuple({**kept, **dict.fromkeys(backends.values())})


def candidate_key(one: Final) -> str:
    return Candidate(backend=one.backend, knobs=one.knobs, kernel=one.kernel, page=one.page).key
