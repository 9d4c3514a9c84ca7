"""What changed between an earlier cross-compilation and this one: another Triton, or other code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from attnctl.compiling.report import Launched
from attnctl.documents.files import read_bytes
from attnctl.documents.json_text import UNREADABLE, refuse_repeated, unmarked
from attnctl.exits import InputError
from attnctl.smoke.trials import BAD, Baseline, Change, SmokeReport, Trial

FIELDS = ("spills_bytes", "shared_bytes", "registers", "products", "matrix")

Key = tuple[str, str, str]


def read_report(path: str) -> SmokeReport:
    """What an earlier compilation wrote as --json. InputError: the file is not that."""
    found = decoded_report(path, "--compile-for TARGETS")
    if not any(backend.level == "compile" for backend in found.backends):
        raise InputError(f"{path}: nothing in it was compiled; it is of another run of smoke")
    return found


def decoded_report(path: str, options: str) -> SmokeReport:
    """A report of smoke. options: what writes one of the kind. InputError: the file is none."""
    data = unmarked(read_bytes(path, "report of smoke"), path)
    try:
        found = msgspec.json.decode(data, type=SmokeReport)
    except UNREADABLE as error:
        raise InputError(
            f"{path} is no report of smoke ({error}); "
            f"write one with: attnctl smoke {options} --json > FILE"
        ) from error
    if found.schema != SmokeReport(backends=(), exit_code=0).schema:
        raise InputError(f"{path} is of schema {found.schema}; write it anew with this attnctl")
    refuse_repeated(data, path)
    return found


def compare_with(earlier: SmokeReport, path: str, now: SmokeReport) -> Baseline:
    """Every launch and case that became something else, each difference once."""
    before, after = _trials(earlier), _trials(now)
    both = [key for key in after if key in before]
    changes: dict[tuple[object, ...], Change] = {}
    same = 0
    for key in both:
        found = [*_case_changes(key, before[key], after[key])]
        same += not found
        for change in found:
            # backends share kernels: one launch's difference is told once
            where = (change.target, change.kernel, change.what, change.before, change.after)
            changes.setdefault(where if change.kernel else (*key, change.what), change)
    targets = {key[0] for key in after}
    return Baseline(
        path=path,
        torch=earlier.torch,
        triton=earlier.triton,
        changes=tuple(changes.values()),
        same=same,
        added=len(after.keys() - before.keys()),
        gone=sum(key[0] in targets for key in before.keys() - after.keys()),
    )


def _trials(report: SmokeReport) -> dict[Key, Trial]:
    return {
        (backend.device, backend.backend, trial.case): trial
        for backend in report.backends
        for trial in backend.trials
    }


def _case_changes(key: Key, before: Trial, after: Trial) -> Iterator[Change]:
    target, backend, case = key
    where = {"target": target, "backend": backend, "case": case}
    if before.status != after.status:
        yield Change(
            **where,
            what="status",
            before=_status(before),
            after=_status(after),
            worse=after.status in BAD and before.status not in BAD,
        )
    for old, new in _pairs(before.launches, after.launches):
        for field in FIELDS:
            was, now = getattr(old, field), getattr(new, field)
            if was != now:
                worse = _is_worse(field, was, now)
                texts = {"before": _shown(was), "after": _shown(now)}
                yield Change(**where, kernel=new.kernel, what=field, **texts, worse=worse)


def _pairs(
    before: tuple[Launched, ...], after: tuple[Launched, ...]
) -> Iterator[tuple[Launched, Launched]]:
    """The launches of one case in both runs: of each kernel the first with the first, and so on."""
    waiting = defaultdict(list)
    for launch in before:
        waiting[launch.kernel].append(launch)
    for launch in after:
        if waiting[launch.kernel]:
            yield waiting[launch.kernel].pop(0), launch


def _is_worse(field: str, was: object, now: object) -> bool:
    if field == "spills_bytes":
        return isinstance(was, int) and isinstance(now, int) and now > was
    return field == "matrix" and bool(was) and not now


def _status(trial: Trial) -> str:
    return f"{trial.status}: {trial.detail}" if trial.detail else trial.status


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
