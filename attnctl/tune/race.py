"""The rounds of one point: all candidates in turns, then the better ones again. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import msgspec

from attnctl.tune.exchange import Bench, Candidate, Verdict
from attnctl.tune.finals import NOT_JUDGED, NOT_TIMED, Final, Out
from attnctl.tune.noise import error_us, levelled
from attnctl.tune.tasks import Task

FIRST_ROUNDS, MORE_ROUNDS, LAST_ROUNDS = 3, 5, 15
LAST = 6
"""Candidates of the last rounds, beside each backend's default and best."""

HOPELESS = 2.0
"""How many times the fastest's time a candidate's may be and still be timed to the end."""

SAMPLE_US = 1500.0
"""About the least that a sample takes."""

GROUP = 20
"""Candidates that run in turns at first: a budget that ends leaves whole groups out."""

QUIET = 0.006
"""The error of the fastest's time, as a share of it, beyond which the last rounds are run again."""

AGAIN = 6
"""How often, at most."""


class Entrant(msgspec.Struct, frozen=True):
    """A candidate in the search: its place among its backend's settings, and its estimate."""

    candidate: Candidate
    place: int
    estimate_us: float

    @property
    def key(self) -> str:
        return self.candidate.key


def musts(entrants: Iterable[Entrant]) -> set[str]:
    """Keys of those that run however late it is.

    Each backend's default, and its first on each size of the cache's blocks: without them nothing
    could be said of a backend, or of a size, at this point.
    """
    found, seen = set(), set()
    for one in entrants:
        which = (one.candidate.backend, one.candidate.page)
        if one.place == 0 or which not in seen:
            found.add(one.key)
        seen.add(which)
    return found


class Race:
    """The rounds of one point. condemn: told of a candidate's key that crashed or hung."""

    def __init__(self, task: Task, bench: Bench, condemn: Callable[[str, Verdict], None]) -> None:
        self._task, self._bench, self._condemn = task, bench, condemn
        self._times: dict[str, list[float]] = {}
        self._last: dict[str, list[float]] = {}
        self._clocks: dict[str, str] = {}
        self._host_us: dict[str, float] = {}
        self._entrants: list[Entrant] = []
        self._kept: list[Entrant] = []
        self.out: list[Out] = []

    def run(self, entrants: Sequence[Entrant], end: float | None) -> None:
        self._entrants = list(entrants)
        always = musts(entrants)
        for start in range(0, len(self._entrants), GROUP):
            group = self._entrants[start : start + GROUP]
            late = end is not None and time.monotonic() > end
            if late and start:
                group = [one for one in group if one.key in always]
            if group:
                self._time(group, FIRST_ROUNDS)
        for one in self._entrants:
            if one.key not in self._times and not any(o for o in self.out if _same(o, one)):
                self.out.append(judged_out(one, Verdict(detail=NOT_TIMED)))
        live = self._alive()
        if len(live) > 3 * LAST and not (end is not None and time.monotonic() > end):
            self._time(self._better(live, -(-len(live) // 3)), MORE_ROUNDS)
        self._kept = self._better(self._alive(), LAST)
        close = self._close(self._kept)
        rounds = self._last_rounds(close, end)
        taken = self._time(close, rounds)
        for _ in range(AGAIN):
            if _is_quiet(taken) or (end is not None and time.monotonic() > end):
                break
            more = self._time([one for one in close if one.key in taken], rounds)
            taken = {key: taken[key] + found for key, found in more.items()}
        self._last = levelled(taken)

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
        found = self._bench.time(self._task.work, candidates, rounds)
        self._clocks |= found.clocks
        self._host_us |= found.host_us
        times, faults = found.times_us, found.faults
        for one in group:
            fault = faults.get(one.key)
            if fault is not None:
                self._times.pop(one.key, None)
                self.out.append(judged_out(one, fault))
                self._condemn(one.key, fault)
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
        # one that was far behind keeps the times of its first rounds
        return [
            self._final(one, self._last.get(one.key) or self._times[one.key])
            for one in self._sorted(self._kept)
        ]

    def dropped(self) -> list[Final]:
        """The others' times, which are of few rounds, in the same order."""
        last = {one.key for one in self._kept}
        others = [one for one in self._alive() if one.key not in last]
        return [self._final(one, self._times[one.key]) for one in self._sorted(others)]

    def _sorted(self, entrants: Iterable[Entrant]) -> list[Entrant]:
        order = {rival.backend: place for place, rival in enumerate(self._task.rivals)}
        timed = [one for one in entrants if one.key in self._times]
        return sorted(timed, key=lambda one: (order[one.candidate.backend], one.place))

    def _final(self, one: Entrant, times: list[float]) -> Final:
        candidate = one.candidate
        return Final(
            backend=candidate.backend,
            place=one.place,
            knobs=candidate.knobs,
            kernel=candidate.kernel,
            page=candidate.page,
            median_us=round(median(times), 3),
            iqr_us=round(_spread(times), 3),
            runs=len(times),
            clock=self._clocks.get(one.key, ""),
            host_us=self._host_us.get(one.key, 0.0),
        )

    def tried(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for one in self._alive():
            counts[one.candidate.backend] = counts.get(one.candidate.backend, 0) + 1
        return counts


def judged_out(one: Entrant, verdict: Verdict | None) -> Out:
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


def _is_quiet(taken: Mapping[str, Sequence[float]]) -> bool:
    """Whether the fastest's time is known as well as it need be."""
    if not taken:
        return True
    fastest = min(levelled(taken).values(), key=median)
    return error_us(_spread(fastest), len(fastest)) <= QUIET * median(fastest)


def _spread(times: Sequence[float]) -> float:
    """The interquartile range."""
    ordered, count = sorted(times), len(times)
    return ordered[min(count - 1, (3 * count) // 4)] - ordered[count // 4]


def _same(out: Out, one: Entrant) -> bool:
    candidate = one.candidate
    return (out.backend, out.kernel, out.knobs) == (
        candidate.backend,
        candidate.kernel,
        candidate.knobs,
    )
