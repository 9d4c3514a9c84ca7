"""The search at one point: judged candidates, interleaved rounds, the slower ones dropped.

Successive halving: all candidates get a few rounds, the better third of them more, the last few
the most. Every backend's default and every backend's best stay to the end, so that a profile can
compare all of them. Within a tie the earlier setting wins, and the default is the first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from attnctl.tune.cost import split
from attnctl.tune.exchange import Bench, Candidate, Fault, Verdict
from attnctl.tune.settings import BLOCK_SIZE, Knobs
from attnctl.tune.tasks import Task
from attnctl.tune.workload import Load

TIE = 1.02
FIRST_ROUNDS, MORE_ROUNDS, LAST_ROUNDS = 3, 5, 15
LAST = 6
"""Candidates of the last rounds, beside each backend's default and best."""

HOPELESS = 2.0
"""How many times the fastest's time a candidate's may be and still be timed to the end."""

NOT_JUDGED = "the budget ended before it was judged"
NOT_TIMED = "the budget ended before it was timed"

SAMPLE_US = 1500.0
"""About the least that a sample takes."""

GROUP = 16
"""Candidates that run in turns at first: a budget that ends leaves whole groups out."""


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate's times. place: its setting's among those of its backend, 0 is the default."""

    backend: str
    place: int
    knobs: Knobs = {}
    kernel: str = ""
    page: int = 0
    median_us: float
    iqr_us: float
    runs: int


class Out(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that could not win."""

    backend: str
    knobs: Knobs = {}
    kernel: str = ""
    why: Fault | str
    detail: str = ""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is kept of one point. tried: backend -> settings that were timed."""

    shape_key: str
    load: Load
    finals: tuple[Final, ...]
    out: tuple[Out, ...] = ()
    tried: dict[str, int] = {}

    def best(self, backend: str | None = None) -> Final | None:
        """The winner within the tie: of one backend, or of all."""
        kept = [one for one in self.finals if backend in (None, one.backend)]
        return winner(kept)


def winner(finals: Sequence[Final]) -> Final | None:
    """The first of those that are within the tie of the fastest."""
    if not finals:
        return None
    bound = min(one.median_us for one in finals) * TIE
    return next(one for one in finals if one.median_us <= bound)


class Entrant(msgspec.Struct, frozen=True):
    """A candidate in the search: its place among its backend's settings, and its estimate."""

    candidate: Candidate
    place: int
    estimate_us: float

    @property
    def key(self) -> str:
        return self.candidate.key


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

        Each backend's default is judged however late it is.
        """
        scope = _scope(task)
        new = [one for one in entrants if f"{scope} {one.key}" not in self._known]
        new.sort(key=lambda one: one.place != 0)
        always = sum(one.place == 0 for one in new)
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
) -> Measured:
    """The times at one point. budget_s: None tries everything. hints: keys to try first."""
    begin = time.monotonic()
    entrants, out = _entrants(task, bench, hints)
    until = None if budget_s is None else begin + 0.5 * budget_s
    good, bad = judge.sift(bench, task, entrants, until)
    out += [_judged_out(one, verdict) for one, verdict in bad]
    race = _Race(task, bench, judge)
    now = time.monotonic()
    # judging that took too long must not leave what it found untimed
    end = None if budget_s is None else max(begin + 0.8 * budget_s, now + 0.25 * budget_s)
    race.run(good, end)
    return Measured(
        shape_key=task.shape_key,
        load=task.load,
        finals=tuple(race.finals()),
        out=tuple(sorted(out + race.out, key=_sorting)),
        tried=race.tried(),
    )


def _entrants(task: Task, bench: Bench, hints: Sequence[str]) -> tuple[list[Entrant], list[Out]]:
    """Candidates in the order of trying: defaults, hints, the others by estimate."""
    found: list[Entrant] = []
    out: list[Out] = []
    for rival in task.rivals:
        work = msgspec.structs.replace(task.work, page=rival.page)
        settings = bench.settings(work, rival.backend)
        if isinstance(settings, Verdict):
            why = settings.fault or "error"
            out.append(Out(backend=rival.backend, why=why, detail=settings.detail))
            continue
        kept, pruned = split(settings, bench.site())
        places = {id(setting): place for place, setting in enumerate(settings)}
        for estimate, setting in kept:
            page = int(setting.knobs.get(BLOCK_SIZE, rival.page))
            candidate = Candidate(
                backend=rival.backend, knobs=setting.knobs, kernel=setting.kernel, page=page
            )
            found.append(Entrant(candidate, places[id(setting)], estimate))
        out += [
            Out(
                backend=rival.backend,
                knobs=setting.knobs,
                kernel=setting.kernel,
                why="pruned",
                detail=why,
            )
            for setting, why in pruned
        ]
    rank = {key: place for place, key in enumerate(hints)}
    last = len(rank)
    # among those that promise about as much, the order of the settings counts
    found.sort(key=lambda e: (e.place != 0, rank.get(e.key, last), _promise(e.estimate_us)))
    return found, out


def _promise(estimate_us: float) -> int:
    return round(4 * math.log2(max(estimate_us, 1e-6)))


def _judged_out(one: Entrant, verdict: Verdict | None) -> Out:
    candidate = one.candidate
    late = Verdict(detail=NOT_JUDGED)
    found = verdict or late
    return Out(
        backend=candidate.backend,
        knobs=candidate.knobs,
        kernel=candidate.kernel,
        why=found.fault or "pruned",
        detail=found.detail,
    )


def _sorting(out: Out) -> tuple[str, str, str, str]:
    return out.backend, out.kernel, out.why, str(sorted(out.knobs.items()))


class _Race:
    """The rounds of one point."""

    def __init__(self, task: Task, bench: Bench, judge: Judge) -> None:
        self._task, self._bench, self._judge = task, bench, judge
        self._times: dict[str, list[float]] = {}
        self._last: dict[str, list[float]] = {}
        self._entrants: list[Entrant] = []
        self._kept: list[Entrant] = []
        self.out: list[Out] = []

    def run(self, entrants: Sequence[Entrant], end: float | None) -> None:
        self._entrants = list(entrants)
        for start in range(0, len(self._entrants), GROUP):
            group = self._entrants[start : start + GROUP]
            late = end is not None and time.monotonic() > end
            if late and start:
                group = [one for one in group if one.place == 0]
            if group:
                self._time(group, FIRST_ROUNDS)
        for one in self._entrants:
            if one.key not in self._times and not any(o for o in self.out if _same(o, one)):
                self.out.append(_judged_out(one, Verdict(detail=NOT_TIMED)))
        live = self._alive()
        if len(live) > 3 * LAST and not (end is not None and time.monotonic() > end):
            self._time(self._better(live, -(-len(live) // 3)), MORE_ROUNDS)
        self._kept = self._better(self._alive(), LAST)
        close = self._close(self._kept)
        self._last = self._time(close, self._last_rounds(close, end))

    def _close(self, kept: list[Entrant]) -> list[Entrant]:
        """Those that the last rounds may still put in another order."""
        least = min((median(self._times[one.key]) for one in kept), default=0.0)
        return [one for one in kept if median(self._times[one.key]) <= HOPELESS * least]

    def _last_rounds(self, kept: Sequence[Entrant], end: float | None) -> int:
        """As many as the budget has room for."""
        if end is None:
            return LAST_ROUNDS
        round_s = sum(max(SAMPLE_US, median(self._times[one.key])) for one in kept) / 1e6
        room = int((end - time.monotonic()) / 0.7 / max(round_s, 1e-9))
        return max(MORE_ROUNDS, min(LAST_ROUNDS, room))

    def _alive(self) -> list[Entrant]:
        return [one for one in self._entrants if one.key in self._times]

    def _time(self, group: Sequence[Entrant], rounds: int) -> dict[str, list[float]]:
        candidates = [one.candidate for one in group]
        times, faults = self._bench.time(self._task.work, candidates, rounds)
        for one in group:
            fault = faults.get(one.key)
            if fault is not None:
                self._times.pop(one.key, None)
                self.out.append(_judged_out(one, fault))
                self._judge.condemn(self._task, one.key, fault)
            elif one.key in times:
                self._times[one.key] = self._times.get(one.key, []) + times[one.key]
        return {key: found for key, found in times.items() if key not in faults}

    def _better(self, live: Sequence[Entrant], count: int) -> list[Entrant]:
        """The fastest, with each backend's default and, for each size of its blocks, its best."""
        ranked = sorted(live, key=lambda one: median(self._times[one.key]))
        kept = {one.key for one in ranked[:count]}
        kept |= {one.key for one in live if one.place == 0}
        seen = set()
        for one in ranked:
            which = (one.candidate.backend, one.candidate.page)
            if which not in seen:
                seen.add(which)
                kept.add(one.key)
        return [one for one in live if one.key in kept]

    def finals(self) -> list[Final]:
        """The last candidates' times, backend by backend in the order of their settings."""
        order = {rival.backend: place for place, rival in enumerate(self._task.rivals)}
        kept = [one for one in self._kept if one.key in self._times]
        kept.sort(key=lambda one: (order[one.candidate.backend], one.place))
        # one that was far behind keeps the times of its first rounds
        return [_final(one, self._last.get(one.key) or self._times[one.key]) for one in kept]

    def tried(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for one in self._alive():
            counts[one.candidate.backend] = counts.get(one.candidate.backend, 0) + 1
        return counts


def _same(out: Out, one: Entrant) -> bool:
    candidate = one.candidate
    return (out.backend, out.kernel, out.knobs) == (
        candidate.backend,
        candidate.kernel,
        candidate.knobs,
    )


def _final(one: Entrant, times: list[float]) -> Final:
    candidate, ordered = one.candidate, sorted(times)
    count = len(ordered)
    low, high = ordered[count // 4], ordered[min(count - 1, (3 * count) // 4)]
    return Final(
        backend=candidate.backend,
        place=one.place,
        knobs=candidate.knobs,
        kernel=candidate.kernel,
        page=candidate.page,
        median_us=round(median(ordered), 3),
        iqr_us=round(high - low, 3),
        runs=count,
    )
