"""Runs the jobs in children side by side; one that crashes or hangs costs itself. No torch."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from attnctl.machine import Machine
from attnctl.processes.child import Worker
from attnctl.profile.document import key_of
from attnctl.warming.plan import Wanted
from attnctl.warming.values import Begin, Job, Made, Warmed, WarmReport

MODULE = "attnctl.warming.worker"
START_LIMIT_S = 180.0
MOST_CHILDREN = 8

Told = Callable[[int, Warmed], None]
"""Is told of each job as it ends, with how many have ended."""


def warm(
    path: str,
    wanted: Wanted,
    machine: Machine,
    device: int,
    *,
    jobs: int | None = None,
    timeout_s: float = 300.0,
    told: Told = lambda done, warmed: None,
) -> WarmReport:
    """What came of every job, in their order. timeout_s: of one job, its start not counted."""
    start = time.monotonic()
    begin = Begin(
        machine=machine,
        device=device,
        place=_place(machine, device),
        profile=path if wanted.profile is None else wanted.profile,
    )
    count = min(jobs or _children(machine), len(wanted.jobs))
    made = _Shared(wanted.jobs, told)
    threads = [
        threading.Thread(target=_work_off, args=(made, begin, timeout_s), daemon=True)
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        made.stop()  # what ends in a thread's hands is then not followed by another
        raise
    gpus = machine.gpus
    return WarmReport(
        profile=path,
        device=str(key_of(machine, gpus[device] if gpus else None)),
        jobs=made.in_order(),
        compiled=sum(len(one.made.compiled) for one in made.in_order()),
        found=sum(one.made.found for one in made.in_order()),
        built=len({name for one in made.in_order() for name in one.made.built}),
        seconds=round(time.monotonic() - start, 1),
        notes=wanted.notes,
    )


class _Shared:
    """The jobs that are left and those that ended, for threads."""

    def __init__(self, jobs: Sequence[Job], told: Told) -> None:
        self._left = deque(enumerate(jobs))
        self._done: dict[int, Warmed] = {}
        self._lock, self._told = threading.Lock(), told

    def next(self) -> tuple[int, Job] | None:
        with self._lock:
            return self._left.popleft() if self._left else None

    def stop(self) -> None:
        with self._lock:
            self._left.clear()

    def ended(self, place: int, job: Job, made: Made) -> None:
        warmed = Warmed(shape=str(job.shape), backend=job.backend, setting=job.setting, made=made)
        with self._lock:
            self._done[place] = warmed
            self._told(len(self._done), warmed)

    def in_order(self) -> tuple[Warmed, ...]:
        return tuple(self._done[place] for place in sorted(self._done))


def _work_off(shared: _Shared, begin: Begin, timeout_s: float) -> None:
    """One child after another until no job is left: a child that died is replaced."""
    worker: Worker | None = None
    try:
        while (following := shared.next()) is not None:
            place, job = following
            limit_s = timeout_s
            if worker is None:
                worker, limit_s = Worker(module=MODULE), timeout_s + START_LIMIT_S
                worker.send(msgspec.json.encode(begin).decode())
            made = _answer(worker, job, limit_s)
            if made.status in ("crashed", "timeout"):
                worker.end()
                worker = None
            shared.ended(place, job, made)
    finally:
        if worker is not None:
            worker.end()


def _answer(worker: Worker, job: Job, limit_s: float) -> Made:
    worker.send(msgspec.json.encode(job).decode())
    try:
        line = worker.line(limit_s)
    except EOFError:
        return Made(status="crashed", detail=worker.death())
    if line is None:
        return Made(status="timeout", detail=f"no answer after {limit_s:g} s")
    return msgspec.json.decode(line, type=Made)


def _place(machine: Machine, device: int) -> str:
    if machine.platform == "cpu":
        return "cpu"
    return f"{'xpu' if machine.platform == 'xpu' else 'cuda'}:{device}"


def _children(machine: Machine) -> int:
    """As many as there is use: a processor's kernels are few sources."""
    if machine.platform == "cpu":
        return 1
    usable = machine.cpu.usable or os.cpu_count() or 1
    return max(1, min(MOST_CHILDREN, usable - 1))
