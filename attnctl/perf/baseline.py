"""What became slower since an earlier run that timed: another driver, Triton, or other code."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from attnctl.smoke.trials import (
    BAD,
    BackendTrials,
    Baseline,
    Ceiling,
    Change,
    SmokeReport,
    Timing,
    Trial,
)

SLOWER_PERCENT = 10.0
"""By how much a time must have grown to be called slower, where the user names nothing."""

Key = tuple[str, str, str]


def compare_times(
    earlier: SmokeReport, path: str, now: SmokeReport, percent: float = SLOWER_PERCENT
) -> Baseline:
    """Every case that is slower or faster by more than `percent` and by more than its noise."""
    before, after = _trials(earlier), _trials(now)
    both = [key for key in after if key in before]
    found = {key: list(_changes(key, before[key], after[key], percent)) for key in both}
    first = earlier.ceilings[0] if earlier.ceilings else None
    devices = {one.device for one in now.ceilings}
    return Baseline(
        path=path,
        torch=first.torch if first else "",
        triton=first.triton if first else "",
        driver=next((one.driver for one in earlier.ceilings if one.driver), ""),
        slower_percent=percent,
        changes=(
            *_ceiling_changes(earlier.ceilings, now.ceilings, percent),
            *(change for changes in found.values() for change in changes),
        ),
        same=sum(not changes for changes in found.values()),
        added=len(after.keys() - before.keys()),
        gone=sum(key[0] in devices for key in before.keys() - after.keys()),
    )


def slower(before: Timing, now: Timing, percent: float) -> bool:
    """Whether a time grew beyond the threshold, and its middle half beyond the earlier one's."""
    grown = now.median_us > before.median_us * (1 + percent / 100)
    # the quartiles lie about half of the range to either side of the median
    apart = now.median_us - now.iqr_us / 2 > before.median_us + before.iqr_us / 2
    return grown and apart


def suspects(earlier: SmokeReport, now: SmokeReport, percent: float) -> dict[str, tuple[str, ...]]:
    """By device and backend, "cpu CPU_ATTN": the cases that look slower, to be timed again."""
    before = _trials(earlier)
    return {
        f"{one.device} {one.backend}": cases
        for one in now.backends
        if (cases := tuple(_suspected(one, before, percent)))
    }


def _suspected(one: BackendTrials, before: dict[Key, Trial], percent: float) -> Iterator[str]:
    for trial in one.trials:
        was = before.get((one.device, one.backend, trial.case))
        if was is None or was.timing is None or trial.timing is None:
            continue
        if slower(was.timing, trial.timing, percent):
            yield trial.case


def better(first: BackendTrials, again: BackendTrials) -> BackendTrials:
    """The first run's trials, each with the second's where its time is the shorter one.

    What a second run finds wrong is wrong.
    """
    second = {trial.case: trial for trial in again.trials}
    kept = tuple(_better(trial, second.get(trial.case)) for trial in first.trials)
    return msgspec.structs.replace(first, trials=kept)


def _better(first: Trial, again: Trial | None) -> Trial:
    if again is None or first.timing is None:
        return first
    if again.timing is None:
        return again if again.status in BAD else first
    return again if again.timing.median_us < first.timing.median_us else first


def _trials(report: SmokeReport) -> dict[Key, Trial]:
    """Those that ran, of the devices that were timed."""
    timed = {one.device for one in report.ceilings}
    return {
        (backend.device, backend.backend, trial.case): trial
        for backend in report.backends
        if backend.device in timed
        for trial in backend.trials
        if trial.timing is not None or trial.status in BAD
    }


def _changes(key: Key, before: Trial, after: Trial, percent: float) -> Iterator[Change]:
    device, backend, case = key
    where = {"target": device, "backend": backend, "case": case}
    if before.status != after.status:
        worse = after.status in BAD and before.status not in BAD
        was, now = (f"{x.status}: {x.detail}".removesuffix(": ") for x in (before, after))
        yield Change(**where, what="status", before=was, after=now, worse=worse)
    if before.timing is None or after.timing is None:
        return
    grown = slower(before.timing, after.timing, percent)
    # the other way round by the same rule, so that noise is neither
    if grown or slower(after.timing, before.timing, percent):
        was, now = (f"{x.median_us:.4g}" for x in (before.timing, after.timing))
        yield Change(**where, what="median_us", before=was, after=now, worse=grown)


def _ceiling_changes(
    before: tuple[Ceiling, ...], now: tuple[Ceiling, ...], percent: float
) -> Iterator[Change]:
    """Where the device itself does more or less than it did: then times say little of kernels.

    Still less where it is another device.
    """
    was = {one.device: one for one in before}
    for one in now:
        then = was[one.device].hardware if one.device in was else ""
        if then and one.hardware and then != one.hardware:
            yield Change(
                target=one.device,
                backend="",
                case="",
                what="hardware",
                before=then,
                after=one.hardware,
            )
        for field in ("read_gbps", "matrix_gflops"):
            old, new = getattr(was.get(one.device), field, 0.0), getattr(one, field)
            if old and abs(new / old - 1) > percent / 100:
                yield Change(
                    target=one.device,
                    backend="",
                    case="",
                    what=field,
                    before=f"{old:.4g}",
                    after=f"{new:.4g}",
                )
