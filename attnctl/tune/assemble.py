"""A profile from the measured points of a tune. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from attnctl.profile.keys import Key, Versions
from attnctl.profile.values import Entry, Point, Profile, Rejected, Timing
from attnctl.tune.between import Around
from attnctl.tune.exchange import Site
from attnctl.tune.finals import NOT_JUDGED, NOT_TIMED, OTHER_PAGE, Final, Measured, Out, winner
from attnctl.tune.pages import best_page, tie_of
from attnctl.tune.settings import BLOCK_SIZE
from attnctl.tune.tasks import Rival, Task

LATE = (NOT_JUDGED, NOT_TIMED)
SUMMED = (*LATE, OTHER_PAGE)
"""Reasons that are told once with the number of settings, and not for each of them."""

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
    entries = [_entry(pairs, kernels, tie_of(site)) for pairs in by_shape.values()]
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
    return {
        **site.conditions,
        "l2": "cold",
        "read_gbps": site.read_gbps,
        "matrix_gflops": site.matrix_gflops,
        "threads": site.threads,
    }


def _entry(pairs: list[Pair], kernels: dict[str, str], tie: float) -> Entry:
    backends = [rival.backend for rival in pairs[0][0].rivals]
    measured = [found for _, found in pairs]
    page = best_page(measured, tie)
    around = Around(measured, page)
    points = (
        _point(task, found, page, [around.winner(place, rival.backend) for rival in task.rivals])
        for place, (task, found) in enumerate(pairs)
    )
    return Entry(
        shape=pairs[0][0].shape,
        points=tuple(point for point in points if point.timings),
        kernels={name: kernels[name] for name in sorted(backends) if name in kernels},
        order=tuple(backends),
    )


def _point(task: Task, found: Measured, page: int | None, winners: Sequence[Final | None]) -> Point:
    """winners: of each rival of the task the setting that stands for this point."""
    load = task.load
    timings, left_out = [], []
    for rival, best in zip(task.rivals, winners, strict=True):
        if best is not None:
            timings.append(_timing(best, found, rival))
        elif any(one.backend == rival.backend for one in found.finals):
            # it must not be taken for one that nothing is known of
            detail = f"not timed with {page} tokens in a block of the cache, which the layers share"
            left_out.append(Rejected(backend=rival.backend, why="pruned", detail=detail))
    return Point(
        phase=load.phase,
        batch=load.batch,
        context=load.context,
        query=load.query,
        weight=load.weight,
        timings=tuple(timings),
        others=tuple(_others(task, found, page)),
        rejected=(
            *left_out,
            *_unreached(found),
            *(_rejected(one) for one in found.out if one.detail not in SUMMED),
        ),
    )


def _rejected(one: Out) -> Rejected:
    return Rejected(
        backend=one.backend,
        knobs=one.knobs,
        kernel=one.kernel,
        why=one.why,  # type: ignore[arg-type]
        detail=one.detail,
    )


def _unreached(found: Measured) -> Iterator[Rejected]:
    """One for all settings of a backend that were left out for one reason."""
    counts = Counter((one.backend, one.detail in LATE) for one in found.out if one.detail in SUMMED)
    for (backend, late), count in sorted(counts.items()):
        which = "1 setting" if count == 1 else f"{count} settings"
        detail = f"the budget ended before {which} could be judged and timed"
        if not late:
            detail = f"other sizes of the cache's blocks lost at other points: {which} not tried"
        yield Rejected(backend=backend, why="pruned", detail=detail)


def _others(task: Task, found: Measured, page: int | None) -> Iterator[Timing]:
    """Each backend's best on the sizes of the cache's blocks that were raced here and lost."""
    for other in sorted(set(found.pages) - {page}):
        for rival in task.rivals:
            own = [one for one in found.finals if (one.backend, one.page) == (rival.backend, other)]
            best = winner(own)
            if best is not None:
                yield _timing(best, found, rival)


def _timing(best: Final, found: Measured, rival: Rival) -> Timing:
    """rival: the backend, whose blocks are named where they are not those it has everywhere."""
    own_block, block = (rival.page, best.page) if rival.told else (None, None)
    own = (one for one in found.finals if one.backend == best.backend)
    default = next((one.median_us for one in own if one.place == 0), None)
    return Timing(
        backend=best.backend,
        median_us=best.median_us,
        iqr_us=best.iqr_us,
        runs=best.runs,
        knobs={**best.knobs, BLOCK_SIZE: block} if block else best.knobs,
        kernel=best.kernel,
        default_us=default,
        default_block=None if default is None else own_block,
        tried=found.tried.get(best.backend, 1),
        clock=best.clock,
        host_us=best.host_us if best.host_us > best.median_us else None,
    )
