"""What a measurement of regret prints: rows, their means and worst."""

from __future__ import annotations

import json
import math
from pathlib import Path


class Quiet:
    def begin(self, total):
        print(f"tuning {total} points", flush=True)

    def step(self, step):
        best = step.measured.best()
        shown = f"{best.backend} {best.median_us:.1f} us {best.knobs}" if best else "none"
        print(f"  {step.done}/{step.total} {step.task.load}: {shown}", flush=True)


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
