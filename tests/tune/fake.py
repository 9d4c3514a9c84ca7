"""A device whose times are known: what a search should find on it is known as well."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attnctl.layer import Options
from attnctl.machine import Machine
from attnctl.machines import load as load_machine
from attnctl.machines.assumed import assume
from attnctl.model import read_model
from attnctl.registry import load
from attnctl.tune.exchange import Candidate, Site, Times, Verdict
from attnctl.tune.run import Step
from attnctl.tune.session import Request
from attnctl.tune.settings import Effort, Knobs, Setting, Work
from attnctl.tune.tasks import Task, plan_tasks
from attnctl.tune.workload import Load
from tests.commands.running import LLAMA

POINTS = (
    Load(phase="decode", batch=1, context=1024),
    Load(phase="decode", batch=16, context=4096),
    Load(phase="prefill", batch=1, context=2048, query=2048),
)

Cost = Callable[[Work, Candidate], float]


def bowl(work: Work, candidate: Candidate) -> float:
    """Fastest at tile 64 with 4 warps; the defaults (tile 16, 2 warps) take twice as long."""
    tile, warps = candidate.knobs.get("tile", 16), candidate.knobs.get("warps", 2)
    off = abs(int(tile).bit_length() - 7) + abs(int(warps).bit_length() - 3)
    return 100.0 * (1 + off / 3)


class FakeBench:
    """A Bench of one knobbed backend and others with their defaults alone.

    cost: the true time in microseconds. noise: its spread in each sample. faults: candidate key ->
    what judging it gives; late: what timing it gives. host_us: of a launch. timed, judged: what was
    asked, in order.
    """

    def __init__(
        self,
        cost: Cost = bowl,
        *,
        noise: float = 0.0,
        settings: Sequence[Knobs] | None = None,
        knobbed: str = "TRITON_ATTN",
        faults: dict[str, Verdict] | None = None,
        late: dict[str, Verdict] | None = None,
        effort: Callable[[Knobs], Effort | None] = lambda knobs: None,
        seed: int = 0,
        host_us: float = 0.0,
    ) -> None:
        self._cost, self._noise, self._knobbed = cost, noise, knobbed
        self._settings = [{}, *GRID] if settings is None else settings
        self._faults, self._late, self._effort = faults or {}, late or {}, effort
        self._random = random.Random(seed)
        self._host_us = host_us
        self.timed: list[tuple[str, int]] = []
        self.judged: list[str] = []

    def site(self) -> Site:
        return Site(torch="2.11.0", triton="3.6.0", units=132, memory_bytes=1 << 37)

    def settings(self, work: Work, backend: str) -> Sequence[Setting] | Verdict:
        if backend != self._knobbed:
            return (Setting(),)
        return [Setting(knobs=knobs, effort=self._effort(knobs)) for knobs in self._settings]

    def check(
        self,
        work: Work,
        candidates: Sequence[Candidate],
        until: float | None = None,
        always: int = 0,
    ) -> Iterator[tuple[Candidate, Verdict]]:
        for place, one in enumerate(candidates):
            if until is not None and time.monotonic() > until and place >= always:
                return
            self.judged.append(one.key)
            yield one, self._faults.get(one.key, Verdict())

    def time(self, work: Work, candidates: Sequence[Candidate], rounds: int) -> Times:
        times: dict[str, list[float]] = {}
        faults: dict[str, Verdict] = {}
        for one in candidates:
            self.timed.append((one.key, rounds))
            if one.key in self._late:
                faults[one.key] = self._late[one.key]
            else:
                times[one.key] = [self._sample(work, one) for _ in range(rounds)]
        host_us = dict.fromkeys(times, self._host_us) if self._host_us else {}
        clock = "queue" if work.phase == "prefill" else "graph"
        return Times(times, faults, dict.fromkeys(times, clock), host_us)

    def _sample(self, work: Work, one: Candidate) -> float:
        return self._cost(work, one) * (1 + self._random.uniform(0, self._noise))


GRID: tuple[Knobs, ...] = tuple(
    {"tile": tile, "warps": warps} for tile in (16, 32, 64, 128, 256) for warps in (1, 2, 4, 8)
)


class Silent:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def begin(self, total: int) -> None:
        self.total = total

    def step(self, step: Step) -> None:
        self.steps.append(step)


def machine() -> Machine:
    """An H200 with the packages of a usual image."""
    return assume(load_machine("h200"), None, load()).machine


def tasks(loads: Sequence[Load] = POINTS, backends: Sequence[str] = ()) -> tuple[Task, ...]:
    spec = read_model(LLAMA)
    plan = plan_tasks(spec, machine(), load(), Options(), loads, backends=backends)
    return plan.tasks


def task(load: Load = POINTS[0], backends: Sequence[str] = ("TRITON_ATTN",)) -> Task:
    return tasks((load,), backends)[0]


def request(output: Path, **more: Any) -> Request:
    fields: dict[str, Any] = {
        "spec": read_model(LLAMA),
        "registry": load(),
        "options": Options(),
        "loads": POINTS,
        "machine": machine(),
        "backends": ("TRITON_ATTN", "FLEX_ATTENTION"),
        "output": str(output),
        **more,
    }
    return Request(**fields)


def key(knobs: Knobs, backend: str = "TRITON_ATTN", page: int = 16) -> str:
    return Candidate(backend=backend, knobs=knobs, page=page).key
