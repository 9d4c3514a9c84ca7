"""The parent of the children that run candidates: blames, ends and restarts. Imports no torch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

import msgspec

from attnctl.exits import AttnctlError, Exit
from attnctl.processes.child import Worker
from attnctl.tune import bench_lines
from attnctl.tune.exchange import Candidate, Site, Times, Verdict
from attnctl.tune.settings import Setting, Work

START_LIMIT_S = 180.0
MODULE = "attnctl.tune.worker"


class ChildError(AttnctlError):
    """The child cannot be used at all: nothing can be timed on this machine."""

    exit_code = Exit.NO


class _DiedError(Exception):
    """The child is gone or silent. verdict: what that makes of whom it ran."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.detail)
        self.verdict = verdict


class Child:
    """One child, started when it is first asked and again after it died."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._worker: Worker | None = None

    @property
    def fresh(self) -> bool:
        """Whether the next request starts a process first."""
        return self._worker is None

    def end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def kill(self) -> None:
        """Ends the process from another thread than the one that waits for it, which notices."""
        if self._worker is not None:
            self._worker.kill()

    def send(self, ask: bench_lines.Ask) -> None:
        if self._worker is None:
            self._worker = Worker(self._device, module=MODULE)
        self._worker.send(msgspec.json.encode(ask).decode())

    def answer(self, limit_s: float) -> bench_lines.Answer:
        """The next answer. _DiedError: there is none; the child is ended then."""
        assert self._worker is not None
        try:
            line = self._worker.line(limit_s)
            if line is not None:
                return msgspec.json.decode(line, type=bench_lines.Answer)
            fault = Verdict(fault="timeout", detail=f"no answer after {limit_s:g} s")
        except EOFError:
            fault = Verdict(fault="crashed", detail=self._worker.death())
        except msgspec.MsgspecError as error:
            fault = Verdict(fault="error", detail=f"garbled answer: {error}")
        self.end()
        raise _DiedError(fault)


class WorkerBench:
    """A Bench of children: one that times, and `jobs` that judge side by side.

    limit_s: how long one candidate may take for one run of anything.
    """

    def __init__(self, device: str, jobs: int = 1, limit_s: float = 60.0) -> None:
        self._child = Child(device)
        self._judges = [self._child] if jobs <= 1 else [Child(device) for _ in range(jobs)]
        self._limit_s = limit_s
        self._site: Site | None = None

    def __enter__(self) -> WorkerBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for child in (self._child, *self._judges):
            child.end()

    def site(self) -> Site:
        """What the child found. ChildError: it cannot start, with its own words."""
        if self._site is None:
            try:
                answer = self._asked(bench_lines.AskSite(), START_LIMIT_S)
            except _DiedError as died:
                raise ChildError(f"tune: the worker did not start: {died}") from died
            if not isinstance(answer, bench_lines.Here):
                detail = getattr(answer, "detail", "an unexpected answer")
                raise ChildError(f"tune: the worker could not start: {detail}")
            self._site = answer.site
        return self._site

    def settings(self, work: Work, backend: str) -> Sequence[Setting] | Verdict:
        try:
            answer = self._asked(bench_lines.AskSettings(work, backend), START_LIMIT_S)
        except _DiedError as died:
            return died.verdict
        if isinstance(answer, bench_lines.Found):
            return answer.settings
        return Verdict(fault="error", detail=getattr(answer, "detail", "an unexpected answer"))

    def _asked(self, ask: bench_lines.Ask, limit_s: float) -> bench_lines.Answer:
        self._child.send(ask)
        return self._child.answer(limit_s)

    def check(
        self,
        work: Work,
        candidates: Sequence[Candidate],
        until: float | None = None,
        always: int = 0,
    ) -> Iterator[tuple[Candidate, Verdict]]:
        left = _Queue(candidates, until, always)
        if len(self._judges) == 1 or len(candidates) <= 1:
            while (one := left.next()) is not None:
                yield one, self._judged(self._judges[0], work, one)
            return
        yield from self._side_by_side(work, left)

    def _side_by_side(self, work: Work, left: _Queue) -> Iterator[tuple[Candidate, Verdict]]:
        """Each judge takes the next candidate as it ends one."""
        from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

        idle = list(self._judges)
        running: dict[Future[Verdict], tuple[Child, Candidate]] = {}
        with ThreadPoolExecutor(len(self._judges)) as pool, self._killed_by_signals():
            while True:
                while idle and (following := left.next()) is not None:
                    child = idle.pop()
                    future = pool.submit(self._judged, child, work, following)
                    running[future] = (child, following)
                if not running:
                    return
                done = wait(running, return_when=FIRST_COMPLETED).done
                for future in done:
                    child, one = running.pop(future)
                    idle.append(child)
                    yield one, future.result()

    @contextlib.contextmanager
    def _killed_by_signals(self) -> Iterator[None]:
        """Ends the judges at once where the block is interrupted: a pool waits for its threads."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            for judge in self._judges:
                judge.kill()
            raise

    def _judged(self, child: Child, work: Work, one: Candidate) -> Verdict:
        fresh, begin = child.fresh, time.monotonic()
        child.send(bench_lines.AskCheck(work, one))
        try:
            answer = child.answer(self._limit_s + (START_LIMIT_S if fresh else 0.0))
        except _DiedError as died:
            return died.verdict
        if isinstance(answer, bench_lines.Judged) and answer.key == one.key:
            took = round(time.monotonic() - begin, 3)
            return msgspec.structs.replace(answer.verdict, seconds=took)
        return Verdict(fault="error", detail=getattr(answer, "detail", "an unexpected answer"))

    def time(self, work: Work, candidates: Sequence[Candidate], rounds: int) -> Times:
        faults: dict[str, Verdict] = {}
        left = list(candidates)
        while left:
            blamed, verdict, times = self._swept(work, left, rounds)
            if times is not None:
                return msgspec.structs.replace(times, faults={**faults, **times.faults})
            if blamed == "" and len(left) > 1:
                # it died among all of them: each by itself tells which one it was
                faults |= self._alone(work, left, rounds)
            else:
                faults[blamed or left[0].key] = verdict
            left = [one for one in left if one.key not in faults]
        return Times({}, faults)

    def _alone(self, work: Work, candidates: list[Candidate], rounds: int) -> dict[str, Verdict]:
        faults = {}
        for one in candidates:
            _, verdict, times = self._swept(work, [one], rounds)
            if times is None:
                faults[one.key] = verdict
            else:
                faults |= times.faults
        if not faults:  # none dies alone: the last of them is left out, so that this ends
            detail = "the child died while all candidates ran in turns"
            faults[candidates[-1].key] = Verdict(fault="crashed", detail=detail)
        return faults

    def _swept(
        self, work: Work, candidates: list[Candidate], rounds: int
    ) -> tuple[str, Verdict, Times | None]:
        """Whom the child ran last, what became of it, and the times where all went well."""
        fresh = self._child.fresh
        self._child.send(bench_lines.AskTime(work, tuple(candidates), rounds))
        at, limit = "", self._limit_s + (START_LIMIT_S if fresh else 0.0)
        while True:
            try:
                answer = self._child.answer(limit)
            except _DiedError as died:
                return at, died.verdict, None
            if isinstance(answer, Times):
                return at, Verdict(), answer
            if not isinstance(answer, bench_lines.At):
                detail = getattr(answer, "detail", "an unexpected answer")
                self._child.end()
                return at, Verdict(fault="error", detail=detail), None
            at = answer.key
            # all of them in turns may take as much longer as they are
            limit = self._limit_s * (1 if at else max(1, len(candidates) * rounds / 20))


class _Queue:
    """Candidates in their order until the time is over, the first `always` whatever it is."""

    def __init__(self, candidates: Sequence[Candidate], until: float | None, always: int) -> None:
        self._left, self._until, self._always = list(candidates), until, always
        self._given = 0

    def next(self) -> Candidate | None:
        late = self._until is not None and time.monotonic() > self._until
        if not self._left or (late and self._given >= self._always):
            return None
        self._given += 1
        return self._left.pop(0)
