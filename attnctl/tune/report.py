"""What a tune found, as one value. No torch."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from attnctl.exits import Exit
from attnctl.profile.ranking import pick_of
from attnctl.profile.values import Point, Profile, Shape, Timing
from attnctl.tune.finals import Measured
from attnctl.tune.settings import Knobs
from attnctl.tune.tasks import Task
from attnctl.tune.workload import Load


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One point's outcome. backend: what the profile picks there; None: nothing could be timed.

    bundled: the first of the default order that was timed, bundled_us its time with its defaults.
    """

    load: Load
    backend: str | None = None
    kernel: str = ""
    knobs: Knobs = {}
    median_us: float | None = None
    bundled: str | None = None
    bundled_us: float | None = None
    tried: int = 0
    pruned: int = 0
    failed: int = 0

    @property
    def ratio(self) -> float | None:
        """Its time over that of the bundled choice."""
        if self.median_us is None or not self.bundled_us:
            return None
        return self.median_us / self.bundled_us


class ShapeRows(msgspec.Struct, frozen=True, kw_only=True):
    shape: Shape
    rows: tuple[Row, ...]


class TuneReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole tune. output: where its profile is. failures: one sentence for each, no two alike."""

    schema: str = "attnctl.tune/1"
    output: str
    device: str
    seconds: float
    shapes: tuple[ShapeRows, ...]
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    exit_code: int = Exit.OK


def tune_report(
    tasks: Sequence[Task],
    measured: dict[str, Measured],
    profile: Profile,
    *,
    output: str,
    seconds: float,
    notes: Sequence[str] = (),
) -> TuneReport:
    """exit_code 1 where no point has a time."""
    shapes: dict[str, list[Row]] = {}
    of: dict[str, Shape] = {}
    picks = _picks(profile)
    for task in tasks:
        of.setdefault(task.shape_key, task.shape)
        pick = picks.get((task.shape, *_place(task.load)))
        shapes.setdefault(task.shape_key, []).append(_row(measured[task.key], pick))
    found = tuple(ShapeRows(shape=of[key], rows=tuple(rows)) for key, rows in shapes.items())
    timed = any(row.backend for one in found for row in one.rows)
    return TuneReport(
        output=output,
        device=str(profile.key),
        seconds=round(seconds, 1),
        shapes=found,
        failures=_failures(measured),
        notes=tuple(notes),
        exit_code=Exit.OK if timed else Exit.NO,
    )


def _picks(profile: Profile) -> dict[tuple[object, ...], Timing]:
    """What wins at each point on the cache that the profile gives the layers."""
    return {
        (entry.shape, *_place(point)): timing
        for entry in profile.entries
        for point in entry.points
        if (timing := pick_of(point, entry.order)) is not None
    }


def _place(one: Load | Point) -> tuple[str, int, int, int]:
    return one.phase, one.batch, one.context, one.query


def _row(found: Measured, best: Timing | None) -> Row:
    pruned = sum(one.why == "pruned" for one in found.out)
    counted = Row(
        load=found.load,
        tried=sum(found.tried.values()),
        pruned=pruned,
        failed=len(found.out) - pruned,
    )
    if best is None:
        return counted
    bundled = next((one for one in found.finals if one.place == 0), None)
    return msgspec.structs.replace(
        counted,
        backend=best.backend,
        kernel=best.kernel,
        knobs=best.knobs,
        median_us=best.median_us,
        bundled=bundled.backend if bundled else None,
        bundled_us=bundled.median_us if bundled else None,
    )


def _failures(measured: dict[str, Measured]) -> tuple[str, ...]:
    counts: dict[tuple[str, str, str], int] = {}
    for found in measured.values():
        for one in found.out:
            if one.why != "pruned":
                key = (one.backend, one.why, one.detail[:160])
                counts[key] = counts.get(key, 0) + 1
    return tuple(
        f"{backend}: {why}{_times(count)}: {detail}"
        for (backend, why, detail), count in counts.items()
    )


def _times(count: int) -> str:
    return "" if count == 1 else f" {count} times"
