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
import json
import math
import sys
import time
from pathlib import Path
from statistics import median, quantiles

import msgspec
from ahead import candidates_of

from attnctl.layer import Options
from attnctl.model import read_model
from attnctl.options import read_options
from attnctl.probe import probe
from attnctl.profile.canonical import encode
from attnctl.profile.document import key_of, read_profile, versions_of
from attnctl.profile.hashes import kernel_hashes
from attnctl.profile.pick import Table
from attnctl.registry import load
from attnctl.tune.assemble import assemble
from attnctl.tune.bench import WorkerBench
from attnctl.tune.duration import seconds
from attnctl.tune.exchange import Candidate
from attnctl.tune.journal_lines import Entry, JudgedLine
from attnctl.tune.noise import error_us, levelled
from attnctl.tune.race import Entrant
from attnctl.tune.refine import run_refined
from attnctl.tune.search import Judge
from attnctl.tune.session import Request, _jobs, _place
from attnctl.tune.settings import BLOCK_SIZE
from attnctl.tune.tasks import Task, plan_tasks
from attnctl.tune.workload import Load, read_workload

FIRST_ROUNDS, LAST_ROUNDS, LAST, ALIKE = 3, 30, 6, 3
AGAIN, QUIET = 4, 0.005
PAIRS = 120

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


class Quiet:
    def begin(self, total):
        print(f"tuning {total} points", flush=True)

    def step(self, step):
        best = step.measured.best()
        shown = f"{best.backend} {best.median_us:.1f} us {best.knobs}" if best else "none"
        print(f"  {step.done}/{step.total} {step.task.load}: {shown}", flush=True)


def pick_of(task, table):
    """The candidate that the profile names for this point, on the cache that it names for all.

    A layer has one cache, whose size of blocks is the table's, whatever the point's knobs say.
    """
    load = task.load
    pick = table.pick(load.phase, load.batch, load.context, load.query)
    rival = {rival.backend: rival for rival in task.rivals}[pick.backend]
    page, knobs = table.block_size or rival.page, dict(pick.knobs)
    knobs.pop(BLOCK_SIZE, None)
    if page != rival.page:
        knobs[BLOCK_SIZE] = page
    return pick, Candidate(backend=pick.backend, knobs=knobs, kernel=pick.kernel, page=page)


def exhaust(task, bench, judge, table, end):
    """One row: the pick, the default and the fastest of all and of the pick's size of blocks.

    They are timed in turns, in the same rounds.
    """
    begin = time.monotonic()
    pick, chosen = pick_of(task, table)
    default = Candidate(backend=task.rivals[0].backend, page=task.rivals[0].page)
    asked = [Entrant(one, place, 0.0) for place, one in candidates_of(task, bench)]
    asked.sort(key=lambda one: one.place != 0)
    good, _ = judge.sift(bench, task, asked, None)
    everything = {one.key: one.candidate for one in good}
    everything.setdefault(chosen.key, chosen)
    first = {}
    listed = list(everything.values())
    for start in range(0, len(listed), 32):
        if time.monotonic() > end:
            return None
        found = bench.time(task.work, listed[start : start + 32], FIRST_ROUNDS)
        first |= {key: median(times) for key, times in found.times_us.items() if times}
        for key in found.faults:
            everything.pop(key, None)
    ranked = sorted(first, key=first.__getitem__)
    alike = [key for key in ranked if everything[key].page == chosen.page]
    finalists = dict.fromkeys((*ranked[:LAST], *alike[:ALIKE], chosen.key, default.key))
    last = [everything[key] for key in finalists if key in everything]
    taken = _last_times(task, bench, last, chosen.key)
    times = levelled(taken.times_us)
    # the fastest is found by half of the rounds and timed by the other: the least of several
    # noisy times is less than any of them is
    chosen_by = {key: median(found[::2]) for key, found in times.items()}
    final = {key: median(found[1::2]) for key, found in times.items()}
    if chosen.key not in final:
        print(f"   {chosen.key} could not be timed", flush=True)
        return "failed"
    best = min(chosen_by, key=chosen_by.__getitem__)
    alike = [key for key in chosen_by if everything[key].page == chosen.page]
    same = min(alike, key=chosen_by.__getitem__)
    return {
        "shape": str(task.shape),
        "point": str(task.load),
        "settings": len(first),
        "by_backend": _counts(everything[key].backend for key in first),
        "evidence": pick.evidence,
        "pick": chosen.key,
        "pick_us": final.get(chosen.key),
        "best": best,
        "best_us": final[best],
        "same_page": same,
        "same_page_us": final[same],
        "default": default.key,
        "default_us": final.get(default.key),
        "clock": taken.clocks.get(chosen.key, ""),
        # of a launch of prefill, which is not in the time
        "pick_host_us": taken.host_us.get(chosen.key),
        "best_host_us": taken.host_us.get(best),
        "seconds": round(time.monotonic() - begin, 2),
    }


def _last_times(task, bench, last, chosen):
    """The times of the last rounds, run again until the pick's and the fastest's are well known."""
    found = bench.time(task.work, last, LAST_ROUNDS)
    for _ in range(AGAIN):
        times = found.times_us
        level = levelled(times)
        told = [one for key, one in level.items() if key == chosen]
        told.append(min(level.values(), key=median))
        # each half of the rounds tells by itself
        if all(error_us(_spread(one), len(one) / 2) <= QUIET * median(one) for one in told):
            break
        more = bench.time(task.work, last, LAST_ROUNDS).times_us
        both = {key: one + more[key] for key, one in times.items() if key in more}
        found = msgspec.structs.replace(found, times_us=both)
    return found


def _spread(times):
    """The interquartile range."""
    low, _, high = quantiles(times, n=4)
    return high - low


def _counts(names):
    found = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found


def summary(rows):
    regrets = [row["pick_us"] / row["best_us"] for row in rows if row["pick_us"]]
    untuned = [row["default_us"] / row["best_us"] for row in rows if row["default_us"]]
    shapes = {row["shape"] for row in rows}
    least = min((row["settings"] for row in rows), default=0)

    def said(name, ratios):
        if not ratios:
            return f"{name}: none"
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        return f"{name}: geometric mean {mean:.4f}, worst {max(ratios):.3f}"

    print(f"{len(rows)} points off the grid over {len(shapes)} shapes, {least} settings at least")
    print(said("regret of the profile's picks", regrets))
    sized = [row["same_page_us"] / row["best_us"] for row in rows]
    print(said("  of which for one size of the cache's blocks at all points", sized))
    knobs = [row["pick_us"] / row["same_page_us"] for row in rows if row["pick_us"]]
    print(said("  and for backend and knobs of another point", knobs))
    print(said("regret of the untuned defaults", untuned), flush=True)


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


def entry_of(profile, task):
    return next((e for e in profile.entries if e.shape.full == task.shape.full), None)


def is_timed(entry, task):
    """Whether a profile has this very point, which is no point off its grid then."""
    load = task.load
    place = (load.phase, load.batch, load.context, load.query)
    return entry is not None and any(point.place == place for point in entry.points)


def bench_for(arguments):
    asked = Request(
        spec=read_model(arguments.model[0]),
        registry=arguments.registry,
        options=Options(),
        loads=(),
        machine=arguments.machine,
    )
    return WorkerBench(_place(asked), _jobs(asked), 60.0)


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


def say(row):
    ratio = row["pick_us"] / row["best_us"] if row["pick_us"] else float("nan")
    untuned = row["default_us"] / row["best_us"] if row["default_us"] else float("nan")
    print(
        f"{row['shape']} {row['point']}: {row['settings']} settings, regret {ratio:.3f} "
        f"(untuned {untuned:.3f}), best {row['best_us']:.1f} us {row['best']}, pick {row['pick']}",
        flush=True,
    )


def write(arguments, rows):
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(rows, indent=1))


def ratio_of(bench, work, first, second):
    """The second's time over the first's, from pairs of samples that were taken together."""
    times = bench.time(work, [first, second], PAIRS).times_us
    pairs = zip(times[second.key], times[first.key], strict=True)
    return median(later / earlier for later, earlier in pairs)


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


def agreement(name, pairs, defaults):
    """Says how many of two tunes' choices differ, and by how much their times do then."""
    ratios = [max(pair["ratio"], 1 / pair["ratio"]) for pair in pairs]
    differ = [r for r, pair in zip(ratios, pairs, strict=True) if pair["first"] != pair["second"]]
    other = sum(pair["first"] != key for pair, key in zip(pairs, defaults, strict=True))
    mean = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
    print(
        f"{name}: {len(pairs)} points, {other} with another than the default, {len(differ)} differ "
        f"between the tunes: times {max(differ, default=1.0):.3f}x apart at most, {mean:.4f}x in "
        "the mean of all"
    )


def candidate_of(final):
    return Candidate(backend=final.backend, knobs=final.knobs, kernel=final.kernel, page=final.page)


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
