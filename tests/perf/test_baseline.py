"""What counts as slower, on invented times."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from attnctl.documents.files import as_json
from attnctl.exits import InputError
from attnctl.perf.baseline import compare_times, slower, suspects
from attnctl.perf.run import compared, read_times
from attnctl.render.plain import plain
from attnctl.render.smoke import smoke_view
from attnctl.smoke.planning import Plan
from attnctl.smoke.trials import BackendTrials, Ceiling, SmokeReport, Timing, Trial

CEILING = Ceiling(
    device="cuda", read_gbps=4000.0, matrix_gflops=7e5, triton="3.6.0", driver="570.1"
)


def timing(us: float, iqr: float = 0.2) -> Timing:
    return Timing(median_us=us, iqr_us=iqr, runs=11, copies=3, clock="graph")


def report(*trials: Trial, ceiling: Ceiling = CEILING) -> SmokeReport:
    one = BackendTrials("TRITON_ATTN", "cuda", "device", trials)
    return SmokeReport(backends=(one,), perf=True, ceilings=(ceiling,), exit_code=0)


def trial(us: float, case: str = "paged()", iqr: float = 0.2) -> Trial:
    return Trial(case, "pass", timing=timing(us, iqr))


@pytest.mark.parametrize(
    ("before", "now", "is_slower"),
    [
        (timing(10.0), timing(10.9), False),  # below the threshold
        (timing(10.0), timing(11.2), True),
        (timing(10.0, 2.0), timing(11.2, 2.0), False),  # inside the spread
        (timing(10.0, 2.0), timing(12.5, 2.0), True),
        (timing(10.0), timing(5.0), False),
    ],
)
def test_slower_is_beyond_the_threshold_and_beyond_the_spread(
    before: Timing, now: Timing, is_slower: bool
) -> None:
    """10 % alone is noise where the middle halves overlap, and a steady 9 % is not enough."""
    assert slower(before, now, 10.0) is is_slower


def test_the_threshold_is_the_users() -> None:
    """5 % of steady times are found when asked for."""
    assert slower(timing(10.0), timing(10.6), 5.0)
    assert not slower(timing(10.0), timing(10.6), 10.0)


def test_slower_and_faster_cases_are_named_and_others_counted() -> None:
    """Only the slower one is worse; what is in one run alone is counted."""
    before = report(trial(10.0, "a()"), trial(10.0, "b()"), trial(10.0, "c()"), trial(1.0, "d()"))
    now = report(trial(20.0, "a()"), trial(5.0, "b()"), trial(10.1, "c()"), trial(1.0, "e()"))
    found = compare_times(before, "old.json", now)
    assert [(x.case, x.before, x.after, x.worse) for x in found.changes] == [
        ("a()", "10", "20", True),
        ("b()", "10", "5", False),
    ]
    assert (found.same, found.added, found.gone, found.worse) == (1, 1, 1, 1)


def test_a_case_that_is_wrong_now_is_worse() -> None:
    """It has no time, and its words are shown."""
    bad = Trial("paged()", "wrong", detail="error 1 over budget 0.1")
    (change,) = compare_times(report(trial(10.0)), "", report(bad)).changes
    assert (change.what, change.before, change.worse) == ("status", "pass", True)
    assert change.after == "wrong: error 1 over budget 0.1"


def test_a_device_that_does_less_is_said_and_is_no_regression() -> None:
    """A lowered clock shows in the ceilings; kernels are judged all the same."""
    slow = msgspec.structs.replace(CEILING, read_gbps=2000.0)
    found = compare_times(report(trial(10.0)), "", report(trial(10.0), ceiling=slow))
    assert [(x.what, x.before, x.after, x.worse) for x in found.changes] == [
        ("read_gbps", "4000", "2000", False)
    ]
    assert found.same == 1


def plan() -> Plan:
    return Plan("TRITON_ATTN", "cuda", "device", ("a()", "b()"), ())


def test_what_looks_slower_is_timed_again_before_it_is_said() -> None:
    """Only the suspect is; its better time counts, so that one hiccup is no regression."""
    before = report(trial(10.0, "a()"), trial(10.0, "b()"))
    now = report(trial(14.0, "a()"), trial(10.0, "b()"))
    asked: list[tuple[str, ...]] = []

    def again(one: Plan) -> BackendTrials:
        asked.append(one.runnable)
        return BackendTrials("TRITON_ATTN", "cuda", "device", (trial(10.2, "a()"),))

    found = compared(before, "old.json", now, None, (plan(),), again)
    assert asked == [("a()",)]
    assert found.exit_code == 0
    assert found.backends[0].trials[0].timing == timing(10.2)
    assert found.baseline is not None
    assert (found.baseline.changes, found.baseline.same) == ((), 2)


def test_what_stays_slower_is_exit_code_1() -> None:
    """Twice the time, twice."""
    before, now = report(trial(10.0, "a()")), report(trial(20.0, "a()"))
    assert suspects(before, now, 10.0) == {"cuda TRITON_ATTN": ("a()",)}
    found = compared(before, "old.json", now, None, (plan(),), lambda one: now.backends[0])
    assert found.exit_code == 1
    text = plain(smoke_view(found))
    assert "Since old.json (the same versions)" in text
    assert "20 (2.00x)" in text
    assert "1 slower, 0 faster, 0 the same (beyond 10 % and beyond the spread" in text


def test_a_run_that_shares_no_case_is_no_comparison() -> None:
    """Nothing was compared, which is not good."""
    before, now = report(trial(10.0, "a()")), report(trial(10.0, "z()"))
    found = compared(before, "old.json", now, None, (plan(),), lambda one: now.backends[0])
    assert found.exit_code == 1
    assert "no case was timed both then and now" in plain(smoke_view(found))


def test_another_driver_and_triton_are_named() -> None:
    """What a reader suspects first."""
    new = msgspec.structs.replace(CEILING, driver="580.2", triton="3.7.1")
    now = report(trial(10.0), ceiling=new)
    found = compared(report(trial(10.0)), "o.json", now, None, (), lambda one: now.backends[0])
    text = plain(smoke_view(found))
    assert "triton 3.6.0 then, 3.7.1 now; driver 570.1 then, 580.2 now" in text


def test_a_written_report_reads_back_and_others_are_refused(tmp_path: Path) -> None:
    """--perf --json is what --baseline reads; a run without times is not."""
    path = tmp_path / "old.json"
    path.write_bytes(as_json(report(trial(10.0))))
    assert read_times(str(path)) == report(trial(10.0))
    path.write_bytes(as_json(SmokeReport(backends=(), exit_code=0)))
    with pytest.raises(InputError, match="nothing in it was timed"):
        read_times(str(path))


@pytest.mark.parametrize(
    "one",
    [
        *(timing(us) for us in (0.0, -5.0, 1e300, 1e-9)),
        *(timing(10.0, spread) for spread in (-1.0, 1e300)),
    ],
    ids=str,
)
def test_a_time_that_no_clock_gives_is_refused(tmp_path: Path, one: Timing) -> None:
    """A damaged file is said to be that, and nothing is divided by its zeros."""
    path = tmp_path / "old.json"
    path.write_bytes(as_json(report(Trial("a()", "pass", timing=one))))
    with pytest.raises(InputError, match=r"TRITON_ATTN a\(\): .* is no time"):
        read_times(str(path))


@pytest.mark.parametrize("field", ["read_gbps", "matrix_gflops", "cache_bytes"])
def test_a_device_that_does_less_than_nothing_is_refused(tmp_path: Path, field: str) -> None:
    """With the place in the file."""
    path = tmp_path / "old.json"
    ceiling = msgspec.structs.replace(CEILING, **{field: -1})
    path.write_bytes(as_json(report(trial(10.0), ceiling=ceiling)))
    with pytest.raises(InputError, match=rf">= 0.* - at `\$\.ceilings\[0\]\.{field}`"):
        read_times(str(path))


@pytest.mark.parametrize(
    ("field", "value"),
    [("read_gbps", 1e15), ("matrix_gflops", 1e300), ("cache_bytes", 1 << 60)],
)
def test_a_device_beyond_any_that_there_is_is_refused(
    tmp_path: Path, field: str, value: float
) -> None:
    """Every device of today would do less than it did."""
    path = tmp_path / "old.json"
    ceiling = msgspec.structs.replace(CEILING, **{field: value})
    path.write_bytes(as_json(report(trial(10.0), ceiling=ceiling)))
    with pytest.raises(InputError, match=rf"<= 1.* - at `\$\.ceilings\[0\]\.{field}`"):
        read_times(str(path))


@pytest.mark.parametrize("field", ["runs", "bytes", "flops", "gbps", "floor_us", "share"])
def test_a_timing_of_less_than_nothing_is_refused(tmp_path: Path, field: str) -> None:
    """Whatever figure it is."""
    path = tmp_path / "old.json"
    one = Trial("a()", "pass", timing=msgspec.structs.replace(timing(10.0), **{field: -1}))
    path.write_bytes(as_json(report(one)))
    with pytest.raises(InputError, match=rf"is no report of smoke \(.*>= 0.*\.{field}`"):
        read_times(str(path))


def test_another_device_is_named() -> None:
    """Its times are compared all the same, by a reader who knows; older reports name none."""
    before, now = (
        report(trial(10.0), ceiling=msgspec.structs.replace(CEILING, hardware=name))
        for name in ("NVIDIA H100", "NVIDIA H200")
    )
    (change,) = compare_times(before, "", now).changes
    assert (change.what, change.before, change.after) == ("hardware", "NVIDIA H100", "NVIDIA H200")
    assert not change.worse
    assert compare_times(report(trial(10.0)), "", now).changes == ()
