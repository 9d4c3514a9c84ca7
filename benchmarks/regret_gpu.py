"""A tuned profile of several models, its regret and the agreement of two tunes, in one go on a GPU.

    python benchmarks/regret_gpu.py --model config.json [--model ...] [--tune-only config.json ...]
        [--backend NAME ...] [--most 48] [--jobs N] [--ahead 120s] [--tune 60s] [--regret 120s]
        [--repeat 30s] --out FOLDER

First every candidate is compiled and judged, side by side on all processor cores; then each model
is tuned as `attnctl tune` does, then benchmarks/regret.py measures the points between the grid's
with every candidate, then the first model's grid is tuned again. --most: settings of a backend that
are tried at a point, in the tunes and against them. What is not compiled when --ahead ends is left
out of all. --tune, --regret and --repeat bound each model's tune, all points, and the second tune.
Everything is written as it comes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import msgspec
from ahead import AheadBench, compiled
from regret import Quiet, entry_of, exhaust, off_grid, pick_of, ratio_of, say, summary

from attnctl.layer import Options
from attnctl.model import read_model
from attnctl.probe import probe
from attnctl.profile.document import read_profile
from attnctl.profile.pick import Table
from attnctl.registry import load
from attnctl.tune.bench import WorkerBench
from attnctl.tune.duration import seconds
from attnctl.tune.search import Judge
from attnctl.tune.session import Request, _jobs, _place, tune
from attnctl.tune.tasks import plan_tasks
from attnctl.tune.workload import read_workload


class Run:
    """What the stages share."""

    def __init__(self, arguments):
        self.begin = time.monotonic()
        self.arguments, self.folder = arguments, Path(arguments.out)
        self.machine, self.registry = probe(), load()
        self.bench = None

    def say(self, text):
        print(f"[{time.monotonic() - self.begin:.1f} s, {compiled()} kernels] {text}", flush=True)

    def request(self, model, loads, output, budget=None):
        return Request(
            spec=read_model(model),
            registry=self.registry,
            options=Options(),
            loads=loads,
            machine=self.machine,
            backends=tuple(self.arguments.backend or ()),
            output=str(self.folder / output),
            budget_s=budget,
        )

    def tasks(self, model, loads, ops=()):
        found = plan_tasks(
            read_model(model),
            self.machine,
            self.registry,
            Options(),
            loads,
            backends=tuple(self.arguments.backend or ()),
            ops=ops,
        )
        return found.tasks

    def grid(self):
        loads = read_workload(self.arguments.workload)
        count = self.arguments.points
        return loads[:: max(1, len(loads) // count)][:count] if count else loads


def ahead(run):
    arguments = run.arguments
    tasks = [
        task
        for model in (*arguments.model, *(arguments.tune_only or ()))
        for task in run.tasks(model, run.grid())
    ]
    for model in arguments.model:
        tasks += run.tasks(model, off_grid(arguments), ("paged",))
    limit = seconds(arguments.ahead, "--ahead")
    done, left = run.bench.judge(tasks, limit, arguments.jobs, run.folder / "ahead.jsonl")
    faults = sum(one.fault is not None for one in run.bench.verdicts.values())
    run.say(f"judged ahead: {done}, of which {faults} cannot win; {left} left out")


def tunes(run):
    budget = seconds(run.arguments.tune, "--tune")
    for model in (*run.arguments.model, *(run.arguments.tune_only or ())):
        name = f"{Path(model).stem}.json"
        report = tune(run.request(model, run.grid(), name, budget), Quiet(), run.bench)
        run.say(f"tuned {name} in {report.seconds} s, exit code {report.exit_code}")
        for failure in report.failures:
            print(f"   {failure[:300]}", flush=True)


def regrets(run):
    end = time.monotonic() + seconds(run.arguments.regret, "--regret")
    rows, judge = [], Judge()
    for task, profile in _between(run):
        table = Table(entry_of(profile, task), [rival.backend for rival in task.rivals])
        row = exhaust(task, run.bench, judge, table, end)
        if row is None:
            run.say("the time for regret is over")
            break
        if row != "failed":
            rows.append(row)
            say(row)
            (run.folder / "regret.json").write_text(json.dumps(rows, indent=1))
    summary(rows)


def _between(run):
    """Points between the grid's, shape by shape, with the profile that was tuned for them."""
    for model in run.arguments.model:
        path = run.folder / f"{Path(model).stem}.json"
        if path.exists():
            profile = read_profile(path)
            for task in run.tasks(model, off_grid(run.arguments), ("paged",)):
                yield task, profile


def repeats(run):
    model = run.arguments.model[0]
    loads = run.grid()[: run.arguments.repeated]
    budget = seconds(run.arguments.repeat, "--repeat")
    tune(run.request(model, loads, "again.json", budget), Quiet(), run.bench)
    first = read_profile(run.folder / f"{Path(model).stem}.json")
    again = read_profile(run.folder / "again.json")
    rows = []
    for task in run.tasks(model, loads, ("paged",)):
        order = [rival.backend for rival in task.rivals]
        one, other = (
            pick_of(task, Table(entry_of(profile, task), order))[1] for profile in (first, again)
        )
        row = {"shape": str(task.shape), "point": str(task.load), "ratio": 1.0}
        row |= {"first": one.key, "second": other.key}
        if one.key != other.key:
            row["ratio"] = ratio_of(run.bench, task.work, one, other)
            print(f"{task.load}: {row['ratio']:.3f} {one.key} {other.key}", flush=True)
        rows.append(row)
        (run.folder / "repeat.json").write_text(json.dumps(rows, indent=1))
    differ = [max(row["ratio"], 1 / row["ratio"]) for row in rows if row["first"] != row["second"]]
    worst = max(differ, default=1.0)
    print(f"{len(rows)} points, {len(differ)} with two winners, whose times differ {worst:.3f}x")


STAGES = {"ahead": ahead, "tune": tunes, "regret": regrets, "repeat": repeats}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--tune-only", action="append")
    parser.add_argument("--backend", action="append")
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--points", type=int, default=0, help="of the grid, evenly; 0: all")
    parser.add_argument("--off", help="a workload file of the points off the grid")
    parser.add_argument("--most", type=int, default=48)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--repeated", type=int, default=20, help="points of the second tune")
    for name, default in (
        ("ahead", "120s"),
        ("tune", "60s"),
        ("regret", "120s"),
        ("repeat", "30s"),
    ):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    arguments.scale = "large"
    run = Run(arguments)
    run.folder.mkdir(parents=True, exist_ok=True)
    asked = run.request(arguments.model[0], (), "none")
    place = _place(asked)
    arguments.jobs = arguments.jobs or _jobs(asked)
    with WorkerBench(place, 1, 60.0) as bench:
        run.bench = AheadBench(bench, place, arguments.most)
        run.say(f"{msgspec.json.encode(run.bench.site()).decode()}; {arguments.jobs} jobs")
        for stage in arguments.stages.split(","):
            STAGES[stage](run)
            run.say(f"{stage} is done")


if __name__ == "__main__":
    sys.exit(main())
