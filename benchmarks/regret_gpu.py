"""A tuned profile of several models, its regret and the agreement of two tunes, in one go on a GPU.

    python benchmarks/regret_gpu.py --model config.json [--model ...] [--tune-only config.json ...]
        [--backend NAME ...] [--most 64] [--jobs N] [--ahead 120s] [--tune 60s] [--regret 120s]
        [--repeat 30s] [--others 30s] --out FOLDER

First every candidate is compiled and judged, side by side on all processor cores; then each model
is tuned as `attnctl tune` does, then benchmarks/regret.py measures the points between the grid's
with every candidate, then points of the first model's grid are tuned twice. --most: settings of a
backend that the tunes may try at a point, the likely ones; they are measured against all that there
are. What is not compiled when --ahead ends is left out of all. --tune bounds the tune of each layer
shape, --regret all points off the grid, --repeat the two tunes. The models of --tune-only are tuned
at the end, a layer shape in --others. Everything is written as it comes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import zip_longest
from pathlib import Path

import msgspec
from ahead import AheadBench, compiled
from regret_measured import entry_of, exhaust, is_timed, pick_of, ratio_of
from regret_told import Quiet, say, summary
from regret_tuned import off_grid

from attnctl.layer import Options
from attnctl.model import read_model
from attnctl.probe import probe
from attnctl.profile.document import read_profile
from attnctl.profile.pick import Table
from attnctl.registry import load
from attnctl.tune.bench import WorkerBench
from attnctl.tune.duration import seconds
from attnctl.tune.search import Judge
from attnctl.tune.session import Request, jobs_of, place_of, tune
from attnctl.tune.tasks import plan_tasks
from attnctl.tune.workload import read_workload

STATE = 0.2
"""The share of a layer shape's budget that one of states is given."""
AHEAD, TIMES = "ahead.jsonl", "times.jsonl"


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

    def grid(self, count=None):
        """The workload's points; count: about as many of them, evenly over both phases."""
        loads = read_workload(self.arguments.workload)
        count = self.arguments.points if count is None else count
        step = max(1, round(len(loads) / count)) if count else 1
        phases = [[one for one in loads if one.phase == phase] for phase in ("decode", "prefill")]
        return tuple(one for phase in phases for one in phase[::step])


def ahead(run):
    arguments = run.arguments
    tasks = {arguments.all: [], arguments.few: []}
    for model in arguments.model:
        tasks[arguments.all] += run.tasks(model, off_grid(arguments), ("paged",))
        tasks[arguments.all] += run.tasks(model, run.grid())
    for model in arguments.tune_only or ():
        tasks[arguments.few] += run.tasks(model, run.grid(arguments.fewer))
    limit = seconds(arguments.ahead, "--ahead")
    done, left = run.bench.judge(tasks, limit, arguments.jobs, run.folder / AHEAD)
    faults = sum(one.fault is not None for one in run.bench.verdicts.values())
    run.say(f"judged ahead: {done}, of which {faults} cannot win; {left} left out")


def tunes(run):
    run.bench.most = run.arguments.most
    _tuned(run, run.arguments.model, run.grid(), run.arguments.tune)


def others(run):
    """The models of --tune-only, last of all: what matters less when the time is short."""
    arguments = run.arguments
    run.bench.most = arguments.few
    _tuned(run, arguments.tune_only or (), run.grid(arguments.fewer), arguments.others)


def _tuned(run, models, loads, budget):
    budget = seconds(budget, "the budget of a layer shape")
    for model in models:
        name = f"{Path(model).stem}.json"
        ops = {task.shape_key: task.layer.op for task in run.tasks(model, loads)}
        # states have few settings and do not see how long a context is
        shapes = sum(STATE if op == "gdn" else 1.0 for op in ops.values())
        asked = run.request(model, loads, name, budget * shapes)
        report = tune(asked, Quiet(), run.bench)
        run.say(f"tuned {name} in {report.seconds} s, exit code {report.exit_code}")
        for failure in report.failures:
            print(f"   {failure[:300]}", flush=True)


def regrets(run):
    end = time.monotonic() + seconds(run.arguments.regret, "--regret")
    rows, judge = [], Judge()
    run.bench.most = run.arguments.all
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
    """Points between the grid's with the profile that was tuned for them, shapes in turns.

    So that a time that ends leaves each shape about as many points as another.
    """
    shapes = {}
    for model in run.arguments.model:
        path = run.folder / f"{Path(model).stem}.json"
        if path.exists():
            profile = read_profile(path)
            for task in run.tasks(model, off_grid(run.arguments), ("paged",)):
                if is_timed(entry_of(profile, task), task):
                    run.say(f"{task.load} was tuned, and is left out")
                    continue
                shapes.setdefault(task.shape_key, []).append((task, profile))
    for turn in zip_longest(*shapes.values()):
        yield from (one for one in turn if one is not None)


def repeats(run):
    """Two tunes of points of the first model's grid: where their picks differ, how far apart."""
    model, loads = run.arguments.model[0], run.grid()
    step = max(1, len(loads) // run.arguments.repeated)
    loads = loads[::step][: run.arguments.repeated]
    budget = seconds(run.arguments.repeat, "--repeat") / 2
    run.bench.most = run.arguments.most
    profiles = []
    for name in ("first.json", "second.json"):
        tune(run.request(model, loads, name, budget), Quiet(), run.bench)
        profiles.append(read_profile(run.folder / name))
    rows = []
    for task in run.tasks(model, loads, ("paged",)):
        order = [rival.backend for rival in task.rivals]
        one, other = (pick_of(task, Table(entry_of(p, task), order))[1] for p in profiles)
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


STAGES = {
    "ahead": ahead,
    "tune": tunes,
    "regret": regrets,
    "repeat": repeats,
    "others": others,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--tune-only", action="append")
    parser.add_argument("--backend", action="append")
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--points", type=int, default=0, help="of the grid, evenly; 0: all")
    parser.add_argument("--few", type=int, default=8, help="as --most, for the --tune-only models")
    parser.add_argument("--fewer", type=int, help="as --points, for the models of --tune-only")
    parser.add_argument("--off", help="a workload file of the points off the grid")
    parser.add_argument("--most", type=int, default=64)
    parser.add_argument("--all", type=int, default=0, help="as --most, for what they meet; 0: all")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--repeated", type=int, default=20, help="points that are tuned twice")
    for name, default in (
        ("ahead", "120s"),
        ("tune", "60s"),
        ("regret", "120s"),
        ("repeat", "30s"),
        ("others", "30s"),
    ):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    arguments.scale = "large"
    run = Run(arguments)
    run.folder.mkdir(parents=True, exist_ok=True)
    asked = run.request(arguments.model[0], (), "none")
    place = place_of(asked)
    arguments.jobs = arguments.jobs or jobs_of(asked)
    with WorkerBench(place, 1, 60.0) as bench:
        run.bench = AheadBench(bench, place, arguments.most)
        run.say(f"{msgspec.json.encode(run.bench.site()).decode()}; {arguments.jobs} jobs")
        run.bench.remember(run.folder / AHEAD)
        run.bench.log = run.folder / TIMES
        for stage in arguments.stages.split(","):
            STAGES[stage](run)
            run.say(f"{stage} is done")


if __name__ == "__main__":
    sys.exit(main())
