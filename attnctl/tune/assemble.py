"""A profile from the measured points of a tune. No torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from attnctl.profile.document import Entry, Key, Point, Profile, Rejected, Timing, Versions
from attnctl.tune.exchange import Site
from attnctl.tune.finals import NOT_JUDGED, NOT_TIMED, SURE, TIE, Final, Measured, Out, winner
from attnctl.tune.tasks import Task

DOUBT = 0.04
"""The logarithm of the gain of another block size that is believed however much points disagree."""

HOST_TIE = 1.05
"""On a processor: where a batch's cache comes to lie moves all times of a point alike, which its
rounds do not show, by a few per cent."""

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
    tie = TIE if site.shared_memory_bytes else HOST_TIE
    entries = [_entry(pairs, kernels, tie) for pairs in by_shape.values()]
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


def _entry(pairs: list[Pair], kernels: dict[str, str], tie: float) -> Entry:
    backends = [rival.backend for rival in pairs[0][0].rivals]
    pages = {backend: _page(backend, pairs, tie) for backend in backends}
    points = (_point(task, found, pages) for task, found in pairs)
    return Entry(
        shape=pairs[0][0].shape,
        points=tuple(point for point in points if point.timings),
        kernels={name: kernels[name] for name in sorted(backends) if name in kernels},
        order=tuple(backends),
    )


def _page(backend: str, pairs: list[Pair], tie: float) -> int | None:
    """The size of a cache block that is best over all points: one cache serves all of them.

    The default's, which is met first, keeps its place unless another is faster beyond the tie, and
    by more than the points' disagreement lets doubt, or by DOUBT. None: it has no times.
    """
    per_point = [
        _by_page(one for one in found.finals if one.backend == backend) for _, found in pairs
    ]
    timed = [
        (one, task.load.weight) for one, (task, _) in zip(per_point, pairs, strict=True) if one
    ]
    pages = [page for page in timed[0][0] if all(page in one for one, _ in timed)] if timed else []
    if not pages:
        return None

    def behind(page: int, other: int) -> tuple[float, float]:
        logs = [math.log(one[page].median_us / one[other].median_us) for one, _ in timed]
        return _mean(logs, [weight for _, weight in timed])

    best = min(pages, key=lambda page: behind(page, pages[0])[0])

    def keeps(page: int) -> bool:
        mean, error = behind(page, best)
        return mean <= max(math.log(tie), min(SURE * error, DOUBT))

    return next(page for page in pages if keeps(page))


def _mean(logs: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """The weighted mean and its standard error, from how much they differ."""
    total = sum(weights)
    mean = sum(weight * one for one, weight in zip(logs, weights, strict=True)) / total
    spread = (weight * (one - mean) for one, weight in zip(logs, weights, strict=True))
    return mean, math.hypot(*spread) / total


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
