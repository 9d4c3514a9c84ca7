"""The grid and the points off it, and a profile that was tuned for the grid."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from regret_told import Quiet

from attnctl.layer import Options
from attnctl.model import read_model
from attnctl.profile.canonical import encode
from attnctl.profile.document import key_of, versions_of
from attnctl.profile.hashes import kernel_hashes
from attnctl.selection.options import read_options
from attnctl.tune.assemble import assemble
from attnctl.tune.bench import WorkerBench
from attnctl.tune.duration import seconds
from attnctl.tune.journal_lines import Entry, JudgedLine
from attnctl.tune.refine import run_refined
from attnctl.tune.session import Request, jobs_of, place_of
from attnctl.tune.tasks import Task, plan_tasks
from attnctl.tune.workload import Load, read_workload

OFF_GRID = {
    # none of chat's points, nor of those that a tune adds in the middle of them
    "large": (
        ("decode", 3, 700, 1),
        ("decode", 7, 3000, 1),
        ("prefill", 1, 300, 300),
        ("decode", 20, 1500, 1),
        ("prefill", 1, 3000, 3000),
        ("decode", 36, 6000, 1),
        ("decode", 150, 600, 1),
        ("prefill", 2, 6000, 512),
        ("decode", 12, 2000, 1),
        ("prefill", 3, 900, 900),
        ("decode", 56, 3000, 1),
        ("prefill", 1, 700, 700),
        ("decode", 5, 5000, 1),
        ("decode", 100, 1300, 1),
    ),
    "small": (
        ("decode", 1, 300, 1),
        ("decode", 1, 1500, 1),
        ("decode", 2, 700, 1),
        ("decode", 3, 1200, 1),
        ("decode", 6, 400, 1),
        ("prefill", 1, 90, 90),
        ("prefill", 1, 300, 300),
        ("prefill", 1, 700, 200),
    ),
}


class Memory:
    """A journal that is kept nowhere, with verdicts that are already known."""

    def __init__(self, verdicts):
        self.verdicts, self.measured = dict(verdicts), {}

    def judged(self, candidate, verdict):
        self.verdicts[candidate] = verdict

    def finished(self, task, measured, seconds=0.0):
        self.measured[task] = measured


def tuned_profile(arguments, model, bench, verdicts, name):
    """A fresh profile of a model's grid, and what was measured at each point."""
    machine, registry = arguments.machine, arguments.registry
    tasks = tasks_of(arguments, model, grid(arguments))
    quiet = Quiet()
    quiet.begin(len(tasks))
    budget = None if arguments.budget == "none" else seconds(arguments.budget, "--budget")
    memory = Memory(verdicts)
    refined, measured = run_refined(tasks, bench, memory, budget_s=budget, told=quiet.step)
    verdicts.update(memory.verdicts)
    key = key_of(machine, next(iter(machine.gpus), None))
    names = {rival.backend for task in tasks for rival in task.rivals}
    profile = assemble(
        refined,
        measured,
        name=machine.name,
        key=key,
        versions=versions_of(machine),
        site=bench.site(),
        kernels=kernel_hashes(registry, key.kind, names),
        day=time.strftime("%Y-%m-%d"),
    )
    if arguments.keep:
        Path(arguments.keep, f"{name}.json").write_bytes(encode(profile))
    return profile, measured


def known_verdicts(arguments):
    """What journals of tunes on this machine say of candidates."""
    found = {}
    for path in arguments.verdicts or ():
        for line in Path(path).read_bytes().splitlines():
            entry = msgspec.json.decode(line, type=Entry)
            if isinstance(entry, JudgedLine):
                found[entry.candidate] = entry.verdict
    return found


def grid(arguments):
    loads = read_workload(arguments.workload)
    if arguments.points:
        step = max(1, len(loads) / arguments.points)
        loads = tuple(loads[int(n * step)] for n in range(min(arguments.points, len(loads))))
    return loads


def off_grid(arguments):
    if arguments.off:
        return read_workload(arguments.off)
    points = OFF_GRID[arguments.scale]
    return tuple(Load(phase=p, batch=b, context=s, query=q) for p, b, s, q in points)


def tasks_of(arguments, model, loads) -> tuple[Task, ...]:
    return plan_tasks(
        read_model(model),
        arguments.machine,
        arguments.registry,
        read_options(arguments.registry, dtype=arguments.dtype),
        loads,
        backends=tuple(arguments.backend or ()),
        ops=tuple(arguments.op or ()),
    ).tasks


def bench_for(arguments):
    asked = Request(
        spec=read_model(arguments.model[0]),
        registry=arguments.registry,
        options=Options(),
        loads=(),
        machine=arguments.machine,
    )
    return WorkerBench(place_of(asked), jobs_of(asked), 60.0)
