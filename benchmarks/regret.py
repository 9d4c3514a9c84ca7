"""What following a tuned profile costs against exhaustive measuring, at points that were not tuned.

    python benchmarks/regret.py --model config.json [--model ...] [--budget 60s] [--profile FILE]
                                [--workload NAME|FILE] [--backend NAME] [--points N] [--out FILE]
                                [--limit SECONDS] [--verdicts JOURNAL]
    python benchmarks/regret.py --repeat --model config.json --budget 60s [--points 20]

For each layer shape a grid is tuned (or --profile holds it), then every eligible backend runs with
every valid setting at points between the grid's; the fastest of them, the profile's pick and the
untuned default are timed again in turns, until their medians are known. Regret is the pick's time
over the fastest's. --repeat: the same grid is tuned twice: where the winners differ, they are timed
in turns. Nothing is pruned here. Rows are written as they come, so that a run that is cut short
keeps what it has.
"""

from __future__ import annotations

import argparse
import sys
import time

from regret_measured import candidate_of, entry_of, exhaust, is_timed, pick_of, ratio_of
from regret_told import agreement, say, summary, write
from regret_tuned import (
    OFF_GRID,
    bench_for,
    grid,
    known_verdicts,
    off_grid,
    tasks_of,
    tuned_profile,
)

from attnctl.probe import probe
from attnctl.profile.document import read_profile
from attnctl.profile.pick import Table
from attnctl.registry import load
from attnctl.tune.exchange import Candidate
from attnctl.tune.search import Judge


def regret(arguments, bench, verdicts):
    rows = []
    profiles = [read_profile(path) for path in arguments.profile or ()]
    if not profiles:
        profiles = [
            tuned_profile(arguments, model, bench, verdicts, f"tuned-{n}")[0]
            for n, model in enumerate(arguments.model)
        ]
    end = time.monotonic() + arguments.limit
    judge = Judge(verdicts)
    for model in arguments.model:
        for task in tasks_of(arguments, model, off_grid(arguments)):
            found = (entry_of(profile, task) for profile in profiles)
            entry = next((one for one in found if one is not None), None)
            if is_timed(entry, task):
                print(f"{task.load} was tuned, and is left out", flush=True)
                continue
            table = Table(entry, [rival.backend for rival in task.rivals])
            row = exhaust(task, bench, judge, table, end)
            if row is None:
                print("the time is over", flush=True)
                return summary(rows)
            if row != "failed":
                rows.append(row)
                say(row)
                write(arguments, rows)
    return summary(rows)


def repeat(arguments, bench, verdicts):
    """Two tunes of one grid: where their winners differ, the ratio of their times.

    Of what the two profiles pick, in which one size of the cache's blocks serves all points; and of
    what won at each point by itself.
    """
    model = arguments.model[0]
    runs = [tuned_profile(arguments, model, bench, verdicts, f"run-{n}") for n in range(2)]
    rows = []
    for task in tasks_of(arguments, model, grid(arguments)):
        order = [rival.backend for rival in task.rivals]
        row = {"point": str(task.load), "shape": str(task.shape)}
        picks = [pick_of(task, Table(entry_of(one, task), order))[1] for one, _ in runs]
        won = [candidate_of(found[task.key].best()) for _, found in runs]
        for name, pair in (("picks", picks), ("winners", won)):
            ratio = 1.0
            if pair[0].key != pair[1].key:
                ratio = ratio_of(bench, task.work, *pair)
                print(f"{task.load}, {name}: {ratio:.3f} {pair[0].key} {pair[1].key}", flush=True)
            row[name] = {"first": pair[0].key, "second": pair[1].key, "ratio": ratio}
        row["default"] = Candidate(backend=order[0], page=task.rivals[0].page).key
        rows.append(row)
        write(arguments, rows)
    for name in ("picks", "winners"):
        agreement(name, [row[name] for row in rows], [row["default"] for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--profile", action="append")
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--off", help="a workload file of the points off the grid")
    parser.add_argument("--scale", choices=tuple(OFF_GRID), default="large")
    parser.add_argument("--points", type=int, default=0, help="of the grid, evenly; 0: all")
    parser.add_argument("--backend", action="append")
    parser.add_argument("--op", action="append")
    parser.add_argument("--dtype")
    parser.add_argument("--budget", default="60s", help="of a tune; none: everything everywhere")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds for the points off it")
    parser.add_argument("--out")
    parser.add_argument("--keep", help="a folder for the profiles")
    parser.add_argument("--verdicts", action="append", help="a journal, for what it judged")
    parser.add_argument("--repeat", action="store_true")
    arguments = parser.parse_args()
    arguments.machine, arguments.registry = probe(), load()
    with bench_for(arguments) as bench:
        verdicts = known_verdicts(arguments)
        (repeat if arguments.repeat else regret)(arguments, bench, verdicts)


if __name__ == "__main__":
    sys.exit(main())
