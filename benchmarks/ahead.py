"""Judges every setting of several models side by side before any is timed, so that timing compiles
nothing: what a tune and a measurement of its regret share on a machine with many processor cores.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import deque
from pathlib import Path
from statistics import median

import msgspec

from attnctl.profile.document import shape_of
from attnctl.tune.bench import Child, WorkerBench
from attnctl.tune.exchange import Verdict
from attnctl.tune.offers import offers
from attnctl.tune.settings import BLOCK_SIZE

TOGETHER = 12
"""Settings of a layer shape that a child judges in succession, on the same small batches."""


def few(settings, most):
    """At most so many settings, the likely ones of each size of the cache's blocks; 0: all."""
    if not most or len(settings) <= most:
        return list(settings)
    groups = {}
    for one in settings:
        groups.setdefault(one.knobs.get(BLOCK_SIZE, 0), deque()).append(one)
    kept = set()
    while len(kept) < most:
        for group in groups.values():
            if group and len(kept) < most:
                kept.add(id(group.popleft()))
    return [one for one in settings if id(one) in kept]


class AheadBench:
    """A WorkerBench that offers at most so many settings and knows verdicts that were made ahead.

    log: a file that is given a line of medians for each call that times.

    What was not judged by then is not judged at all: a candidate that would have to be compiled
    while others are timed is left out, as by a budget that ended.
    """

    def __init__(self, bench: WorkerBench, device: str, most: int) -> None:
        self._bench, self._device, self.most = bench, device, most
        self._offered = {}
        self.verdicts = {}
        self.log = None

    def site(self):
        return self._bench.site()

    def time(self, work, candidates, rounds):
        found = self._bench.time(work, candidates, rounds)
        if self.log is not None:
            self._note(work, rounds, found)
        return found

    def _note(self, work, rounds, found):
        """One line with the median of each candidate, for whoever asks later what was near."""
        point = f"{work.phase} B={work.batch}, S={work.context}, q={work.query}"
        medians = {key: round(median(times), 3) for key, times in found.times_us.items() if times}
        line = str(shape_of(work.layer)), point, rounds, medians, found.clocks, found.host_us
        with Path(self.log).open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def settings(self, work, backend):
        key = msgspec.json.encode((work, backend, self.most))
        if key not in self._offered:
            found = self._bench.settings(work, backend)
            self._offered[key] = found if isinstance(found, Verdict) else few(found, self.most)
        return self._offered[key]

    def check(self, work, candidates, until=None, always=0):
        for one in candidates:
            found = self.verdicts.get(_key(work, one))
            if found is not None:
                yield one, found

    def remember(self, path):
        """Takes the verdicts that an earlier run has kept, if the file is there."""
        self.verdicts |= _read(path)

    def judge(self, tasks, limit_s, jobs, path):
        """Judges what these tasks may run: how many in time, and how many not.

        tasks: by how many settings of a backend are asked for.

        The likely settings of all of them first, of those prefill, whose kernels take the longest.
        path: a file of verdicts, which is added to as they come.
        """
        asked = {}
        for self.most, listed in tasks.items():
            for task in listed:
                for turn, one in _turns(candidates_of(task, self)):
                    key = _key(task.work, one)
                    if key not in asked or turn < asked[key][0]:
                        asked[key] = turn, task, one
        left = [(key, *rest) for key, rest in asked.items() if key not in self.verdicts]
        left.sort(key=_turn)
        queue, lock, end = deque(left), threading.Lock(), time.monotonic() + limit_s

        def work_off(child):
            while time.monotonic() < end:
                with lock:
                    if not queue:
                        break
                    key, _, task, one = queue.popleft()
                verdict = self._bench._judged(child, task.work, one)
                with lock:
                    self.verdicts[key] = verdict
                    with Path(path).open("ab") as file:
                        what = f"{task.shape} {task.load.phase} {one.key}"
                        file.write(msgspec.json.encode((key, what, verdict)) + b"\n")
            child.end()

        children = [Child(self._device) for _ in range(min(jobs, len(left)))]
        threads = [threading.Thread(target=work_off, args=(child,)) for child in children]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(left) - len(queue), len(queue)


def _turns(candidates):
    """When each is to be judged: the likely ones of every size of blocks early, by dozens."""
    seen = {}
    for place, one in candidates:
        group = one.backend, one.page
        seen[group] = seen.get(group, -1) + 1
        yield (0 if place == 0 else 1 + seen[group] // TOGETHER), one


def _turn(one):
    _, turn, task, _ = one
    return turn, task.load.phase != "prefill", task.shape_key


def candidates_of(task, bench):
    """Every backend with every setting that the bench offers: place, candidate."""
    offered, faults = offers(task, bench)
    for name, one in faults.items():
        print(f"   {name}: {one.detail}", flush=True)
    return [
        (place, offer.candidate(setting))
        for offer in offered
        for place, setting in enumerate(offer.settings)
    ]


def compiled():
    """Kernels in Triton's cache: what has been compiled is the difference of two of these."""
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton/cache")
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def _key(work, one):
    """What a verdict depends on: the layer and its phase, not the point's lengths."""
    query = work.query if work.phase == "decode" else 0
    text = msgspec.json.encode((work.layer, work.phase, query, one.key))
    return hashlib.sha256(text).hexdigest()[:24]


def _read(path):
    found = {}
    if Path(path).exists():
        for line in Path(path).read_bytes().splitlines():
            key, _, verdict = msgspec.json.decode(line, type=tuple[str, str, Verdict])
            found[key] = verdict
    return found
