"""The size of a block that the timings ask for, and who stands first at one point."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from attnctl.profile.ranking import BLOCK_SIZE, block_asked, first_within_tie, standing
from attnctl.profile.values import Point, Rejected, Timing

NAMES = "ABCD"


@st.composite
def points(draw: st.DrawFn) -> Point:
    """Some of four backends timed, near each other or not, and some rejected."""
    timed = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return Point(
        phase="decode",
        batch=1,
        context=1,
        weight=draw(st.sampled_from([0.5, 1.0, 3.0])),
        timings=tuple(
            Timing(
                backend=name,
                median_us=draw(st.sampled_from([1.0, 1.01, 1.03, 2.0])),
                knobs=draw(st.sampled_from([{}, {BLOCK_SIZE: 16}, {BLOCK_SIZE: 64}, {"w": 1}])),
            )
            for name in timed
        ),
        rejected=tuple(
            Rejected(backend=name, why="wrong") for name in draw(st.sets(st.sampled_from(NAMES)))
        ),
    )


@given(st.lists(points(), max_size=5), st.lists(st.sampled_from(NAMES), unique=True))
def test_a_block_is_asked_for_by_who_stands_first_at_each_point(
    made: list[Point], eligible: list[str]
) -> None:
    """By weight, where none was timed on two sizes; one whose first was not timed asks nothing."""
    weights: dict[int | None, float] = {}
    for point in made:
        names, times = standing(point, eligible)
        if names and names[0] in times:
            size = times[names[0]].knobs.get(BLOCK_SIZE)
            assert size is None or isinstance(size, int)
            weights[size] = weights.get(size, 0.0) + point.weight
    asked = block_asked(made, eligible)
    assert weights.get(asked, 0.0) == max(weights.values(), default=0.0)
    assert (asked is None) or asked in weights


def at(batch: int, tokens: int, time_us: float, other: tuple[int, float] | None = None) -> Point:
    """A point at which A was timed on this size, and on another beside."""
    one, *beside = (
        Timing(backend="A", median_us=us, knobs={BLOCK_SIZE: size})
        for size, us in ((tokens, time_us), *((other,) if other else ()))
    )
    return Point(phase="decode", batch=batch, context=1, timings=(one,), others=tuple(beside))


FEW = tuple(at(batch, 128, 5.0) for batch in (1, 2))
MANY = tuple(at(batch, 16, 9.0) for batch in range(3, 10))


def test_of_two_sizes_the_faster_one_is_asked_for_where_both_were_timed() -> None:
    """As tunes of other workloads leave them once they are merged; weight decides without."""
    assert block_asked((*FEW, *MANY), "A") == 16
    assert block_asked((*FEW, *MANY, at(10, 16, 9.0, (128, 8.0))), "A") == 128
    assert block_asked((*FEW, *MANY, at(10, 128, 8.0, (16, 9.0))), "A") == 128
    assert block_asked((*FEW, *MANY, at(10, 128, 9.0, (16, 8.0))), "A") == 16


def test_within_a_tie_the_weight_decides() -> None:
    """One per cent is no reason to change a cache that most points were timed on."""
    assert block_asked((*FEW, *MANY, at(10, 16, 9.0, (128, 8.9))), "A") == 16


def test_a_size_that_loses_a_tenth_at_one_point_does_not_displace_what_weighs_more() -> None:
    """What gains in the mean may be very uneven."""
    uneven = (at(10, 16, 9.0, (128, 3.0)), at(11, 16, 9.0, (128, 10.0)))
    assert block_asked((*FEW, *MANY, *uneven), "A") == 16
    assert block_asked((*FEW, *MANY, *uneven[:1]), "A") == 128


def test_times_of_two_backends_say_nothing_of_two_sizes() -> None:
    """Neither was timed on both."""
    other = Timing(backend="B", median_us=1.0, knobs={BLOCK_SIZE: 128})
    point = at(10, 16, 9.0)
    mixed = Point(phase="decode", batch=10, context=1, timings=(*point.timings, other))
    assert block_asked((*MANY, mixed), "AB") == 16


def test_a_size_that_no_point_puts_first_is_not_asked_for() -> None:
    """A tune raced it and chose another, for reasons of its own."""
    assert block_asked((at(1, 16, 9.0, (128, 5.0)), *MANY), "A") == 16


@given(st.integers(1, 10**7), st.sampled_from([100, 1000]))
def test_two_hundredths_more_are_a_tie_however_floats_round(count: int, parts: int) -> None:
    """102 to 100 and 2.346 to 2.3 alike; what is clearly more is not."""
    best, tied, more = count / parts, count * 102 / parts / 100, count * 1021 / parts / 1000
    assert first_within_tie([("first", tied), ("best", best)]) == "first"
    assert first_within_tie([("first", more), ("best", best)]) == "best"
