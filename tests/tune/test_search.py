"""The search at one point, on a device whose times are known."""

from __future__ import annotations

import time

import pytest

from attnctl.tune.exchange import Candidate, Verdict
from attnctl.tune.finals import Measured
from attnctl.tune.search import Judge, tune_point
from attnctl.tune.settings import Effort, Knobs, Work
from tests.tune.fake import GRID, POINTS, FakeBench, bowl, key, task

BEST: Knobs = {"tile": 64, "warps": 4}
FAST: Knobs = {"tile": 16, "warps": 1}


def searched(bench: FakeBench, backends: tuple[str, ...] = ("TRITON_ATTN",)) -> Measured:
    return tune_point(task(backends=backends), bench, Judge())


def why(found: Measured, knobs: Knobs) -> tuple[str, str]:
    (one,) = [out for out in found.out if out.knobs == knobs]
    return one.why, one.detail


@pytest.mark.parametrize("seed", range(20))
def test_the_fastest_of_all_settings_wins_through_noise(seed: int) -> None:
    """Times that spread by a fifth do not hide a setting that is a quarter faster."""
    best = searched(FakeBench(noise=0.2, seed=seed)).best()
    assert best is not None
    assert best.knobs == BEST


def test_the_default_is_timed_in_the_last_rounds_too() -> None:
    """A profile says what the defaults cost in the same rounds."""
    found = searched(FakeBench())
    (default,) = [one for one in found.finals if one.place == 0]
    assert default.median_us == pytest.approx(100 * (1 + 3 / 3))


def test_within_a_tie_the_default_wins() -> None:
    """One per cent is no reason to leave the defaults."""
    best = searched(FakeBench(lambda work, one: 100.0 if one.knobs else 101.0)).best()
    assert best is not None
    assert best.knobs == {}


def test_within_a_tie_the_earlier_setting_wins() -> None:
    """Two settings of one time: the first of the list, whichever was timed first."""

    def cost(work: Work, one: Candidate) -> float:
        return 50.0 if one.knobs in (GRID[3], GRID[11]) else 100.0

    best = searched(FakeBench(cost)).best()
    assert best is not None
    assert best.knobs == GRID[3]


def test_identical_settings_tie() -> None:
    """Where nothing differs but noise, the default stays, for every seed."""
    for seed in range(10):
        bench = FakeBench(lambda work, one: 100.0, noise=0.02, seed=seed)
        best = searched(bench).best()
        assert best is not None
        assert best.place == 0


def test_what_is_faster_only_within_the_noise_does_not_win() -> None:
    """Times of the same length that spread by a tenth: the default stays, for every seed."""
    for seed in range(10):
        bench = FakeBench(lambda work, one: 100.0, noise=0.1, seed=seed)
        best = searched(bench).best()
        assert best is not None
        assert best.place == 0


def test_noise_is_answered_with_more_rounds() -> None:
    """Where the fastest's time is hardly known, the last rounds are run again."""
    runs = []
    for noise in (0.0, 0.3):
        best = searched(FakeBench(noise=noise)).best()
        assert best is not None
        runs.append(best.runs)
    assert runs == [15, 105]


def test_a_fast_setting_that_is_wrong_never_wins() -> None:
    """Ten times faster and wrong: it is recorded, and never timed."""
    wrong = Verdict(fault="wrong", detail="error 0.5 over budget 0.001")
    bench = FakeBench(
        lambda work, one: 10.0 if one.knobs == FAST else bowl(work, one),
        faults={key(FAST): wrong},
    )
    found = searched(bench)
    best = found.best()
    assert best is not None
    assert best.knobs == BEST
    assert why(found, FAST) == ("wrong", "error 0.5 over budget 0.001")
    assert all(timed != key(FAST) for timed, _ in bench.timed)


@pytest.mark.parametrize("fault", ["crashed", "timeout", "error", "wrong"])
def test_what_fails_while_it_is_timed_is_recorded_and_ends_nothing(fault: str) -> None:
    """The winner itself fails at its own size: the next best wins."""
    late = {key(BEST): Verdict(fault=fault, detail="at size")}
    found = searched(FakeBench(late=late))
    best = found.best()
    assert best is not None
    assert best.median_us == pytest.approx(133.333)
    assert why(found, BEST) == (fault, "at size")


def test_what_crashed_at_one_point_is_not_run_at_the_next() -> None:
    """A hang must not cost its time limit at every point."""
    bench = FakeBench(late={key(BEST): Verdict(fault="timeout", detail="no answer")})
    judge = Judge()
    tune_point(task(POINTS[0]), bench, judge)
    before = len(bench.timed)
    found = tune_point(task(POINTS[1]), bench, judge)
    assert all(timed != key(BEST) for timed, _ in bench.timed[before:])
    assert why(found, BEST)[0] == "timeout"


def test_a_verdict_is_asked_for_once_for_all_points_of_a_phase() -> None:
    """Decode at another size compiles the same kernels; prefill does not."""
    bench, judge = FakeBench(), Judge()
    for load in POINTS:
        tune_point(task(load), bench, judge)
    assert len(bench.judged) == 2 * (1 + len(GRID))


def test_every_backend_stays_to_the_end() -> None:
    """A slow rival's time stands in the profile beside the winner's."""

    def cost(work: Work, one: Candidate) -> float:
        return 900.0 if one.backend == "FLEX_ATTENTION" else bowl(work, one)

    found = searched(FakeBench(cost), ("TRITON_ATTN", "FLEX_ATTENTION"))
    slow = found.best("FLEX_ATTENTION")
    assert slow is not None
    assert slow.median_us == pytest.approx(900)
    assert found.tried == {"TRITON_ATTN": 1 + len(GRID), "FLEX_ATTENTION": 1}


def test_halving_times_the_slow_ones_less() -> None:
    """Most samples go to the last few candidates."""
    bench = FakeBench()
    searched(bench)
    samples: dict[str, int] = {}
    for timed, rounds in bench.timed:
        samples[timed] = samples.get(timed, 0) + rounds
    assert samples[key(BEST)] >= 15
    slow = key({"tile": 256, "warps": 1})
    assert samples[slow] <= 3


def test_a_cost_model_rules_out_and_says_why() -> None:
    """A setting that fills a twentieth of the device is not tried; the default always is."""

    def effort(knobs: Knobs) -> Effort:
        return Effort(bytes=1e9, flops=1e9, programs=4 if knobs.get("tile") == 256 else 264)

    bench = FakeBench(effort=effort)
    found = searched(bench)
    reason, detail = why(found, {"tile": 256, "warps": 4})
    assert reason == "pruned"
    assert detail.endswith("4 programs for 132 units")
    assert all("tile=256" not in timed for timed in bench.judged)


def test_a_budget_that_is_over_leaves_the_defaults_and_says_what_was_left_out() -> None:
    """No time at all: one time per backend, everything else recorded as not timed."""
    bench = FakeBench()
    found = tune_point(task(), bench, Judge(), budget_s=0.0)
    assert [one.knobs for one in found.finals] == [{}]
    left = [out for out in found.out if out.why == "pruned"]
    assert len(left) == len(GRID)
    assert {out.detail for out in left} <= {
        "the budget ended before it was judged",
        "the budget ended before it was timed",
    }


def test_hints_are_tried_first_when_time_is_short() -> None:
    """What won at a neighbour is among the first group."""

    class Slow(FakeBench):
        def time(self, work, candidates, rounds):
            time.sleep(1.5)
            return super().time(work, candidates, rounds)

    many = [{}, *({"tile": 2**n, "warps": w} for n in range(3, 12) for w in (1, 2, 4, 8, 16))]
    bench = Slow(settings=many)
    found = tune_point(task(), bench, Judge(), budget_s=2.0, hints=[key(BEST)])
    best = found.best()
    assert best is not None
    assert best.knobs == BEST


def test_a_backend_that_cannot_name_its_settings_is_recorded() -> None:
    """Its runtime does not import: the others are timed."""

    class Broken(FakeBench):
        def settings(self, work, backend):
            if backend == "FLEX_ATTENTION":
                return Verdict(fault="error", detail="ImportError: no torch")
            return super().settings(work, backend)

    found = searched(Broken(), ("TRITON_ATTN", "FLEX_ATTENTION"))
    (out,) = found.out
    assert (out.backend, out.why, out.detail) == (
        "FLEX_ATTENTION",
        "error",
        "ImportError: no torch",
    )
    assert found.best() is not None
