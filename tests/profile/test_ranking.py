"""The size of a block that the timings ask for, and who stands first at one point."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from attnctl.profile.ranking import BLOCK_SIZE, block_asked, standing
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
    """By weight; a point whose first was not timed asks for nothing."""
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
