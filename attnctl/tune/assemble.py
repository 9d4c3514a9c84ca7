"""A profile from the measured points of a tune. No torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from attnctl.profile.document import Entry, Key, Point, Profile, Rejected, Timing, Versions
from attnctl.tune.exchange import Site
from attnctl.tune.finals import NOT_JUDGED, NOT_TIMED, SURE, Final, Measured, Out, winner
from attnctl.tune.noise import error_us
from attnctl.tune.tasks import Task

BLOCK_TIE = 1.05
"""Another size of the cache's blocks concerns all who use the cache: it must be worth more than a
setting of a kernel, and smaller ones go first."""

Pair = tuple[Task, Measured]


def assemble(
    tasks: Sequence[Task],
    measured: dict[str, Measured],
    *,
    name: str,
    key: Key,
    versions: Versions,
    site: Site,
    kernels: dict[str, str],
    day: str,
    memory_bytes: int | None = None,
) -> Profile:
    """measured: by the task's key; tasks without are left out, and so are points without a time."""
    by_shape: dict[str, list[Pair]] = {}
    for task in tasks:
        found = measured.get(task.key)
        if found is not None:
            by_shape.setdefault(task.shape_key, []).append((task, found))
    entries = [_entry(pairs, kernels) for pairs in by_shape.values()]
    return Profile(
        name=name,
        key=key,
        versions=versions,
        measured=day,
        memory_bytes=memory_bytes,
        conditions=_conditions(site),
        entries=tuple(entry for entry in entries if entry.points),
    )


def _conditions(site: Site) -> dict[str, int | float | str | bool]:
    graph = site.shared_memory_bytes > 0
    return {
        **site.conditions,
        "graph": "decode" if graph else "none",
        "l2": "cold",
        "read_gbps": site.read_gbps,
        "matrix_gflops": site.matrix_gflops,
        "threads": site.threads,
    }


def _entry(pairs: list[Pair], kernels: dict[str, str]) -> Entry:
    backends = [rival.backend for rival in pairs[0][0].rivals]
    pages = {backend: _page(backend, pairs) for backend in backends}
    points = (_point(task, found, pages) for task, found in pairs)
    return Entry(
        shape=pairs[0][0].shape,
        points=tuple(point for point in points if point.timings),
        kernels={name: kernels[name] for name in sorted(backends) if name in kernels},
        order=tuple(backends),
    )


def _page(backend: str, pairs: list[Pair]) -> int | None:
    """The size of a cache block that is best over all points: one cache serves all of them.

    The default's, which is met first, keeps its place within BLOCK_TIE. None: it has no times.
    """
    means: dict[int, _Mean] = {}
    per_point = [
        _by_page(one for one in found.finals if one.backend == backend) for _, found in pairs
    ]
    timed = [
        (one, task.load.weight) for one, (task, _) in zip(per_point, pairs, strict=True) if one
    ]
    for page in timed[0][0] if timed else ():
        if all(page in one for one, _ in timed):
            means[page] = _mean([(one[page], weight) for one, weight in timed])
    if not means:
        return None
    best = min(means.values(), key=lambda one: one.log)

    def bound(one: _Mean) -> float:
        return best.log + max(math.log(BLOCK_TIE), SURE * math.hypot(one.error, best.error))

    return next(page for page, mean in means.items() if mean.log <= bound(mean))


class _Mean(NamedTuple):
    """The logarithm of a weighted geometric mean of times, and its standard error."""

    log: float
    error: float


def _mean(finals: Sequence[tuple[Final, float]]) -> _Mean:
    total = sum(weight for _, weight in finals)
    errors = (weight * error_us(one.iqr_us, one.runs) / one.median_us for one, weight in finals)
    return _Mean(
        sum(weight * math.log(one.median_us) for one, weight in finals) / total,
        math.hypot(*errors) / total,
    )


def _by_page(finals: Iterable[Final]) -> dict[int, Final]:
    """The winner among each size's finals, the default's size first."""
    groups: dict[int, list[Final]] = {}
    for one in finals:
        groups.setdefault(one.page, []).append(one)
    return {page: cast("Final", winner(group)) for page, group in groups.items()}


def _point(task: Task, found: Measured, pages: dict[str, int | None]) -> Point:
    load = task.load
    timings = [
        timing
        for rival in task.rivals
        if (timing := _timing(rival.backend, found, pages[rival.backend])) is not None
    ]
    return Point(
        phase=load.phase,
        batch=load.batch,
        context=load.context,
        query=load.query,
        weight=load.weight,
        timings=tuple(timings),
        rejected=(*_unreached(found), *(_rejected(one) for one in found.out if not _late(one))),
    )


def _late(one: Out) -> bool:
    return one.detail in (NOT_JUDGED, NOT_TIMED)


def _rejected(one: Out) -> Rejected:
    return Rejected(
        backend=one.backend,
        knobs=one.knobs,
        kernel=one.kernel,
        why=one.why,  # type: ignore[arg-type]
        detail=one.detail,
    )


def _unreached(found: Measured) -> Iterator[Rejected]:
    """One for all settings of a backend that the budget left no time for."""
    counts = Counter(one.backend for one in found.out if _late(one))
    for backend, count in sorted(counts.items()):
        which = "1 setting" if count == 1 else f"{count} settings"
        detail = f"the budget ended before {which} could be judged and timed"
        yield Rejected(backend=backend, why="pruned", detail=detail)


def _timing(backend: str, found: Measured, page: int | None) -> Timing | None:
    own = [one for one in found.finals if one.backend == backend]
    best = winner([one for one in own if page is None or one.page == page]) or winner(own)
    if best is None:
        return None
    default = next((one.median_us for one in own if one.place == 0), None)
    return Timing(
        backend=backend,
        median_us=best.median_us,
        iqr_us=best.iqr_us,
        runs=best.runs,
        knobs=best.knobs,
        kernel=best.kernel,
        default_us=default,
        tried=found.tried.get(backend, 1),
    )
