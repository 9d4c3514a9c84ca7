"""A point measured with every setting, beside what a profile picks for it."""

from __future__ import annotations

import time
from statistics import median, quantiles

import msgspec
from ahead import candidates_of

from attnctl.tune.exchange import Candidate
from attnctl.tune.noise import error_us, levelled
from attnctl.tune.race import Entrant
from attnctl.tune.settings import BLOCK_SIZE

FIRST_ROUNDS, LAST_ROUNDS, LAST, ALIKE = 3, 30, 6, 3
AGAIN, QUIET = 4, 0.005
PAIRS = 120


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


def entry_of(profile, task):
    return next((e for e in profile.entries if e.shape.full == task.shape.full), None)


def is_timed(entry, task):
    """Whether a profile has this very point, which is no point off its grid then."""
    load = task.load
    place = (load.phase, load.batch, load.context, load.query)
    return entry is not None and any(point.place == place for point in entry.points)


def ratio_of(bench, work, first, second):
    """The second's time over the first's, from pairs of samples that were taken together."""
    times = bench.time(work, [first, second], PAIRS).times_us
    pairs = zip(times[second.key], times[first.key], strict=True)
    return median(later / earlier for later, earlier in pairs)


def candidate_of(final):
    return Candidate(backend=final.backend, knobs=final.knobs, kernel=final.kernel, page=final.page)
