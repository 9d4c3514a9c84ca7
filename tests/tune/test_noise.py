"""Times that were taken in turns, and what noise leaves of them."""

from __future__ import annotations

import random
from statistics import median

import pytest

from attnctl.tune.noise import error_us, levelled

TRUE = {"a": 100.0, "b": 103.0, "c": 110.0, "d": 150.0}


def test_a_load_that_slows_whole_rounds_is_taken_out() -> None:
    """Half of the rounds take twice as long for all: each candidate keeps its usual time."""
    times = {key: [us * (2 if turn % 3 else 1) for turn in range(9)] for key, us in TRUE.items()}
    found = levelled(times)
    for key, us in TRUE.items():
        assert found[key] == pytest.approx([2 * us] * 9)


def test_the_order_shows_through_a_load_that_hides_it() -> None:
    """Rounds of very different length: the levelled medians differ as the true times do."""
    chance = random.Random(3)
    paces = [chance.uniform(1, 2) for _ in range(15)]
    times = {
        key: [us * pace * chance.uniform(0.99, 1.01) for pace in paces] for key, us in TRUE.items()
    }
    found = {key: median(one) for key, one in levelled(times).items()}
    assert found["b"] / found["a"] == pytest.approx(1.03, abs=0.01)
    assert found["d"] / found["a"] == pytest.approx(1.5, abs=0.01)


def test_few_candidates_are_left_as_they_are() -> None:
    """One alone would be its own measure, and its noise would vanish."""
    times = {"a": [1.0, 2.0, 3.0], "b": [2.0, 5.0, 4.0]}
    assert levelled(times) == times


def test_unequal_numbers_of_rounds_are_left_as_they_are() -> None:
    """A candidate that was left out of a round cannot be compared in it."""
    times = {key: [us] * (3 if key == "a" else 2) for key, us in TRUE.items()}
    assert levelled(times) == times


def test_a_median_of_more_runs_errs_less() -> None:
    """The error falls with the root of the number of runs; without spread there is none."""
    assert error_us(10.0, 64) == pytest.approx(error_us(10.0, 16) / 2)
    assert error_us(0.0, 5) == 0
    assert 0.9 < error_us(1.0, 1) < 1.0
