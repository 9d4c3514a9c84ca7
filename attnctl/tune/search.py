"""The search at one point: judged candidates, interleaved rounds, the slower ones dropped.

Successive halving: all candidates get a few rounds, the better third of them more, the last few
the most. Every backend's default and, for each size of the cache's blocks, its best stay to the
end, so that a profile can compare all of them. Within a tie the earlier setting wins, and the
default is the first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from attnctl.tune.cost import split
from attnctl.tune.exchange import Bench, Verdict
from attnctl.tune.finals import OTHER_PAGE, Measured, Out
from attnctl.tune.offers import Offer, offers
from attnctl.tune.race import Entrant, Race, judged_out, musts
from attnctl.tune.tasks import Task


class Judge:
    """Which candidates are right, remembered by shape and phase; told of each new verdict."""

    def __init__(
        self,
        known: dict[str, Verdict] | None = None,
        told: Callable[[str, Verdict], None] = lambda key, verdict: None,
    ) -> None:
        self._known = dict(known or {})
        self._told = told

    def sift(
        self, bench: Bench, task: Task, entrants: Sequence[Entrant], until: float | None
    ) -> tuple[list[Entrant], list[tuple[Entrant, Verdict | None]]]:
        """Those whose outputs are right, and the others with what is known of them.

        What must run is judged however late it is.
        """
        scope = _scope(task)
        new = [one for one in entrants if f"{scope} {one.key}" not in self._known]
        first = musts(entrants)
        new.sort(key=lambda one: one.key not in first)
        always = sum(one.key in first for one in new)
        asked = [one.candidate for one in new]
        for candidate, verdict in bench.check(task.work, asked, until, always):
            self._keep(f"{scope} {candidate.key}", verdict)
        good, bad = [], []
        for one in entrants:
            found = self._known.get(f"{scope} {one.key}")
            if found is not None and found.fault is None:
                good.append(one)
            else:
                bad.append((one, found))
        return good, bad

    def condemn(self, task: Task, key: str, verdict: Verdict) -> None:
        """A candidate that hung or crashed at its own size must not cost a minute at each point."""
        if verdict.fault in ("crashed", "timeout"):
            self._keep(f"{_scope(task)} {key}", verdict)

    def _keep(self, key: str, verdict: Verdict) -> None:
        self._known[key] = verdict
        self._told(key, verdict)


def _scope(task: Task) -> str:
    query = task.load.query if task.load.phase == "decode" else "any"
    return f"{task.shape_key} {task.load.phase} q={query}"


def tune_point(
    task: Task,
    bench: Bench,
    judge: Judge,
    *,
    budget_s: float | None = None,
    hints: Sequence[str] = (),
    page: int | None = None,
    few: bool = False,
) -> Measured:
    """The times at one point. budget_s: None tries everything. hints: keys to try first.

    page: the size of the cache's blocks that is raced, with the defaults; None races all. few: the
    hints are tried and nothing else.
    """
    begin = time.monotonic()
    entrants, out = _entrants(task, bench, hints, page)
    if few:
        entrants, out = [one for one in entrants if one.key in hints], []
    until = None if budget_s is None else begin + 0.5 * budget_s
    good, bad = judge.sift(bench, task, entrants, until)
    out += [judged_out(one, verdict) for one, verdict in bad]
    race = Race(task, bench, lambda key, verdict: judge.condemn(task, key, verdict))
    now = time.monotonic()
    # judging that took too long must not leave what it found untimed
    end = None if budget_s is None else max(begin + 0.8 * budget_s, now + 0.25 * budget_s)
    race.run(good, end)
    raced = dict.fromkeys(one.candidate.page for one in entrants)
    return Measured(
        shape_key=task.shape_key,
        load=task.load,
        finals=tuple(race.finals()),
        dropped=tuple(race.dropped()),
        out=tuple(sorted(out + race.out, key=_sorting)),
        tried=race.tried(),
        pages=tuple(raced) if page is None else (page,),
    )


def _entrants(
    task: Task, bench: Bench, hints: Sequence[str], only: int | None
) -> tuple[list[Entrant], list[Out]]:
    """Candidates in the order of trying: what must run, hints, the others by estimate.

    Each size of the cache's blocks has its turn, so that a time that ends meets all sizes alike.
    """
    offered, faults = offers(task, bench)
    out = [
        Out(backend=name, why=one.fault or "error", detail=one.detail)
        for name, one in faults.items()
    ]
    found: list[Entrant] = []
    for offer in offered:
        entrants, ruled_out = _estimated(offer, bench, only)
        found += entrants
        out += ruled_out
    rank = {key: place for place, key in enumerate(hints)}
    last = len(rank)
    # among those that promise about as much, the order of the settings counts
    found.sort(key=lambda e: (rank.get(e.key, last), _promise(e.estimate_us)))
    first = musts(found)
    found.sort(key=lambda one: one.key not in first)
    return _in_turns(found, len(first)), out


def _in_turns(entrants: Sequence[Entrant], first: int) -> list[Entrant]:
    """The first ones as they are, then one of each backend and size after the other."""
    turns: dict[tuple[str, int], int] = {}
    order = []
    for one in entrants[first:]:
        which = one.candidate.backend, one.candidate.page
        turns[which] = turns.get(which, 0) + 1
        order.append((turns[which], one))
    order.sort(key=lambda each: each[0])
    return [*entrants[:first], *(one for _, one in order)]


def _estimated(offer: Offer, bench: Bench, only: int | None) -> tuple[list[Entrant], list[Out]]:
    """A backend's candidates with their estimates, and those that are not tried."""
    backend = offer.rival.backend
    kept, pruned = split(offer.settings, bench.site())
    places = {id(setting): place for place, setting in enumerate(offer.settings)}
    found, ruled_out = [], [(setting, detail) for setting, detail in pruned]
    for estimate, setting in kept:
        place = places[id(setting)]
        if place and only is not None and offer.page(setting) != only:
            ruled_out.append((setting, OTHER_PAGE))
        else:
            found.append(Entrant(offer.candidate(setting), place, estimate))
    return found, [
        Out(
            backend=backend,
            knobs=setting.knobs,
            kernel=setting.kernel,
            why="pruned",
            detail=detail,
        )
        for setting, detail in ruled_out
    ]


def _promise(estimate_us: float) -> int:
    return round(4 * math.log2(max(estimate_us, 1e-6)))


def _sorting(out: Out) -> tuple[str, str, str, str]:
    return out.backend, out.kernel, out.why, str(sorted(out.knobs.items()))
