"""Runs a tune: point by point under a budget, each kept in the journal as it ends. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from attnctl.tune.exchange import Bench, Candidate
from attnctl.tune.finals import Final, Measured, winner
from attnctl.tune.journal import Journal
from attnctl.tune.pages import best_page, probes, tie_of
from attnctl.tune.search import Judge, tune_point
from attnctl.tune.tasks import Task

FIRST = 5.0
"""The share of a shape's first point in a phase, whose candidates are all judged, to another's."""

WIDE = 2.5
"""The share of a point that races every size of the cache's blocks."""

HINTS = 8
"""Settings that were best at other points and are tried first at the next, of each size."""


class Step(msgspec.Struct, frozen=True):
    """How far a tune is. left_s: an estimate, None where nothing tells yet."""

    done: int
    total: int
    task: Task
    measured: Measured
    left_s: float | None


def run_tasks(
    tasks: Sequence[Task],
    bench: Bench,
    journal: Journal,
    *,
    budget_s: float | None,
    told: Callable[[Step], None] = lambda step: None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Measured]:
    """By the task's key. Points that the journal holds are not measured again.

    budget_s: shared out among the points that are left; None tries everything everywhere. With a
    budget some points of a shape race every size of the cache's blocks first, and the others the
    size that those chose.
    """
    begin = clock()
    done = dict(journal.measured)
    judge = Judge(journal.verdicts, journal.judged)
    alike = {task.alike: done[task.key] for task in tasks if task.key in done}
    tie = tie_of(bench.site())
    wide = _wide(tasks, budget_s)
    left = [task for task in tasks if task.key not in done]
    left.sort(key=lambda task: task.key not in wide)
    total = len(tasks)
    for number, task in enumerate(left):
        found, started = alike.get(task.alike), clock()
        if found is None:
            share = None
            if budget_s is not None:
                rest_s = begin + budget_s - clock()
                share = _share(left[number:], alike, done, wide, rest_s)
            page = None if task.key in wide else _page(task, done, tie)
            hints = _hints(task, done)
            found = tune_point(task, bench, judge, budget_s=share, hints=hints, page=page)
            alike[task.alike] = found
        else:
            found = msgspec.structs.replace(found, load=task.load)
        done[task.key] = found
        journal.finished(task.key, found, clock() - started)
        rest = len(left) - number - 1
        spent = clock() - begin
        guess = spent / (number + 1) * rest
        if budget_s is not None:
            guess = min(guess, max(0.0, budget_s - spent)) if rest else 0.0
        told(Step(total - rest, total, task, found, guess))
    return {task.key: done[task.key] for task in tasks}


def _wide(tasks: Sequence[Task], budget_s: float | None) -> set[str]:
    """Keys of the tasks that race every size of the cache's blocks, before all others.

    Which size is best is told by some points as well as by all; the time that the other sizes would
    take at the rest is better spent on the settings of the one that is chosen.
    """
    if budget_s is None:
        return {task.key for task in tasks}
    places = probes([(task.shape_key, task.load.phase) for task in tasks])
    return {task.key for place, task in enumerate(tasks) if place in places}


def _page(task: Task, done: dict[str, Measured], tie: float) -> int | None:
    """The size that this shape's points chose."""
    return best_page([one for one in done.values() if one.shape_key == task.shape_key], tie)


def _share(
    left: Sequence[Task],
    alike: dict[str, Measured],
    done: dict[str, Measured],
    wide: set[str],
    rest_s: float,
) -> float:
    """Seconds for the first of these tasks."""
    seen = {(one.shape_key, one.load.phase) for one in done.values()}
    met = set(alike)
    weights = []
    for task in left:
        if task.alike in met:
            weights.append(0.0)
            continue
        met.add(task.alike)
        scope = (task.shape_key, task.load.phase)
        usual = WIDE if task.key in wide else 1.0
        weights.append(usual if scope in seen else FIRST)
        seen.add(scope)
    return max(0.0, rest_s) * weights[0] / sum(weights)


def _hints(task: Task, done: dict[str, Measured]) -> list[str]:
    """Keys of the settings that were best at this shape's points of the same phase."""
    near = [
        one
        for one in done.values()
        if one.shape_key == task.shape_key and one.load.phase == task.load.phase
    ]
    near.sort(key=lambda one: _distance(one, task))
    keys: dict[str, None] = {}
    for one in near:
        for best in _bests(one, task):
            candidate = Candidate(
                backend=best.backend, knobs=best.knobs, kernel=best.kernel, page=best.page
            )
            keys.setdefault(candidate.key)
    sizes = {one.page for point in near for one in point.finals}
    return list(keys)[: HINTS * max(1, len(sizes))]


def _bests(point: Measured, task: Task) -> Iterator[Final]:
    """The winner of each backend on each size of the cache's blocks that was raced."""
    for rival in task.rivals:
        own = [one for one in point.finals if one.backend == rival.backend]
        for page in point.pages:
            best = winner([one for one in own if one.page == page])
            if best is not None:
                yield best


def _distance(one: Measured, task: Task) -> float:
    from math import log

    here, there = task.load, one.load
    pairs = ((here.batch, there.batch), (here.context, there.context), (here.query, there.query))
    return sum(abs(log(a / b)) for a, b in pairs)
