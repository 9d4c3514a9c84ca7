"""The search at one point: judged candidates, interleaved rounds, the slower ones dropped.

Successive halving: all candidates get a few rounds, the better third of them more, the last few
the most. Every backend's default and every backend's best stay to the end, so that a profile can
compare all of them. Within a tie the earlier setting wins, and the default is the first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import msgspec

from attnctl.tune.cost import split
from attnctl.tune.exchange import Bench, Candidate, Verdict
from attnctl.tune.finals import Measured, Out
from attnctl.tune.race import Entrant, Race, judged_out
from attnctl.tune.settings import BLOCK_SIZE
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
    out += [judged_out(one, verdict) for one, verdict in bad]
    race = Race(task, bench, lambda key, verdict: judge.condemn(task, key, verdict))
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


def _sorting(out: Out) -> tuple[str, str, str, str]:
    return out.backend, out.kernel, out.why, str(sorted(out.knobs.items()))
