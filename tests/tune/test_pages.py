"""One size of the cache's blocks for a layer shape: how the points choose it."""

from __future__ import annotations

import random

import msgspec
import pytest

from attnctl.tune.finals import Final, Measured
from attnctl.tune.pages import best_page, probes
from attnctl.tune.workload import Load

FLASH, TRITON = "FLASH_ATTN", "TRITON_ATTN"
Times = dict[tuple[str, int], float]

DECODE: Times = {(FLASH, 16): 130.0, (FLASH, 128): 130.0, (TRITON, 16): 100.0, (TRITON, 128): 94.0}
PREFILL: Times = {(FLASH, 16): 100.0, (FLASH, 128): 98.0, (TRITON, 16): 150.0, (TRITON, 128): 190.0}


def point(times: Times, *, phase: str = "decode", weight: float = 1.0, place: int = 0) -> Measured:
    """A raced point with one final of each backend and size."""
    load = Load(phase=phase, batch=1 + place, context=1024, weight=weight)
    return Measured(
        shape_key="paged-1",
        load=load,
        finals=tuple(
            Final(
                backend=backend,
                place=0 if page == 16 else 1,
                knobs={} if page == 16 else {"block_size": page},
                page=page,
                median_us=time,
                iqr_us=0.0,
                runs=15,
            )
            for (backend, page), time in times.items()
        ),
        pages=tuple(dict.fromkeys(page for _, page in times)),
    )


def without(times: Times, *gone: tuple[str, int]) -> Times:
    return {which: time for which, time in times.items() if which not in gone}


def test_the_fastest_backend_on_each_size_is_what_counts() -> None:
    """TRITON_ATTN's prefill suffers from wide blocks, and FLASH_ATTN wins the prefill anyway."""
    points = [point(DECODE), point(DECODE), point(PREFILL, phase="prefill")]
    assert best_page(points, 1.02) == 128


def test_a_size_that_slows_the_winner_of_a_phase_is_weighed_against_what_it_gains() -> None:
    """Six per cent in decode, forty lost in prefill: by the weights of the two."""
    costly = {**without(PREFILL, (FLASH, 128)), (TRITON, 128): 140.0}

    def chosen(weight: float) -> int | None:
        decoding = [point(DECODE, weight=weight), point(DECODE, weight=weight)]
        return best_page([*decoding, point(costly, phase="prefill")], 1.02)

    assert chosen(1.0) == 16
    assert chosen(20.0) == 128


def test_a_point_counts_by_its_weight_and_not_by_its_length() -> None:
    """A prompt that takes a thousand times as long as a step has no thousand votes."""
    long = {which: 1000.0 * time for which, time in PREFILL.items()} | {(FLASH, 128): 101_000.0}
    points = [point(DECODE) for _ in range(9)]
    assert best_page([*points, point(long, phase="prefill")], 1.02) == 128


def test_a_size_that_gains_in_the_mean_and_loses_much_somewhere_is_not_chosen() -> None:
    """Six per cent gained at nine points, twelve lost at the tenth: what is met there pays for it.

    A point that is seldom met does not count for that.
    """
    uneven = {**DECODE, (TRITON, 128): 112.0}
    gains = [point(DECODE, place=place) for place in range(9)]
    assert best_page(gains, 1.02) == 128
    assert best_page([*gains, point(uneven, place=9)], 1.02) == 16
    assert best_page([*gains, point(uneven, place=9, weight=0.1)], 1.02) == 128
    less = {**DECODE, (TRITON, 128): 108.0}
    assert best_page([*gains, point(less, place=9)], 1.02) == 128


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_change_the_size(seed: int) -> None:
    """Nothing but noise of three per cent between the sizes: the default's stays."""
    chance = random.Random(seed)
    points = [
        point({which: chance.gauss(100.0, 3.0) for which in DECODE}, place=place)
        for place in range(14)
    ]
    assert best_page(points, 1.02) == 16


@pytest.mark.parametrize("seed", range(20))
def test_a_gain_is_seen_through_noise(seed: int) -> None:
    """Five per cent under noise of two at every point."""
    chance = random.Random(seed)
    points = [
        point({which: time * chance.gauss(1.0, 0.02) for which, time in DECODE.items()}, place=n)
        for n in range(14)
    ]
    assert best_page(points, 1.02) == 128


def test_points_that_did_not_race_the_sizes_say_nothing_of_them() -> None:
    """Their default is timed on its own size, and only it: that is no comparison."""
    alone = msgspec.structs.replace(point({(TRITON, 16): 100.0, (TRITON, 128): 60.0}), pages=(128,))
    points = [point({(TRITON, 16): 100.0, (TRITON, 128): 104.0}), *[alone] * 9]
    assert best_page(points, 1.02) == 16


def test_one_point_without_a_size_does_not_rule_it_out() -> None:
    """A budget that ended, or a candidate that failed at one batch, among fourteen points."""
    lost = point(without(DECODE, (TRITON, 128), (FLASH, 128)))
    lost = msgspec.structs.replace(lost, pages=(16, 128))
    assert best_page([lost, *[point(DECODE)] * 13], 1.02) == 128


def test_a_size_that_a_phase_cannot_have_is_not_chosen() -> None:
    """All of its prefill is wrong: what it gains in decode does not help."""
    broken = without(PREFILL, (FLASH, 128), (TRITON, 128))
    broken_point = msgspec.structs.replace(point(broken, phase="prefill"), pages=(16, 128))
    assert best_page([*[point(DECODE)] * 13, broken_point], 1.02) == 16


def test_layers_without_blocks_have_none() -> None:
    """States lie in slots: their size is 0; and of nothing nothing is said."""
    assert best_page([point({("GDN_ATTN", 0): 5.0})], 1.02) == 0
    assert best_page([], 1.02) is None


def test_probes_are_spread_over_shapes_and_phases() -> None:
    """Every fifth of each phase; of a shape of few points more of them, or all."""
    places = [("a", "decode")] * 53 + [("a", "prefill")] * 11 + [("b", "decode")] * 7
    found = probes(places)
    assert sum(place < 53 for place in found) == 11
    assert sum(53 <= place < 64 for place in found) == 3
    assert {place for place in found if place >= 64} == set(range(64, 71))
    assert len(probes([("c", "decode")] * 17 + [("c", "prefill")] * 3)) == 20
    assert len(probes([("d", "decode")] * 30)) == 15
