"""The pick for one batch: the nearest timed point, within 4x on each axis, among the eligible."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnctl.profile.keys import Key
from attnctl.profile.pick import FAR, NOT_TIMED, Picker, pick
from attnctl.profile.values import Entry, Point, Profile, Shape, Timing

SHAPE = Shape(op="paged", heads=8, kv_heads=2, head_size=64, head_size_v=64)
Place = tuple[str, int, int, int]


def timed(*points: tuple[Place, dict[str, float]], knobs: dict[str, int] | None = None) -> Profile:
    """A profile of one shape with these times at these places."""
    made = tuple(
        Point(
            phase=phase,
            batch=batch,
            context=context,
            query=query,
            timings=tuple(
                Timing(backend=name, median_us=us, knobs=dict(knobs or {}), default_us=2 * us)
                for name, us in times.items()
            ),
        )
        for (phase, batch, context, query), times in points
    )
    entry = Entry(shape=SHAPE, points=made)
    return Profile(name="p", key=Key(vendor="v", arch="a"), measured="2026-11-20", entries=(entry,))


def picked(profile: Profile, place: Place, eligible: str = "AB") -> str:
    return pick(profile, SHAPE, *place, list(eligible)).backend


def test_the_nearest_point_in_log_space_decides() -> None:
    """Nine sequences are nearer to eight than to sixteen, and twelve to sixteen."""
    profile = timed(
        (("decode", 8, 1024, 1), {"A": 1.0, "B": 2.0}),
        (("decode", 16, 1024, 1), {"A": 2.0, "B": 1.0}),
    )
    assert picked(profile, ("decode", 9, 1024, 1)) == "A"
    assert picked(profile, ("decode", 12, 1024, 1)) == "B"
    assert picked(profile, ("decode", 64, 1024, 1)) == "B"


@pytest.mark.parametrize(
    ("place", "measured"),
    [
        (("decode", 8, 1024, 1), True),
        (("decode", 32, 4096, 4), True),
        (("decode", 2, 256, 1), True),
        (("decode", 33, 1024, 1), False),
        (("decode", 8, 4097, 1), False),
        (("decode", 8, 255, 1), False),
        (("decode", 8, 1024, 5), False),
        (("decode", 80, 1024, 1), False),  # 10x off the grid
        (("prefill", 8, 1024, 1), False),
    ],
)
def test_beyond_four_times_on_any_axis_the_default_serves(place: Place, measured: bool) -> None:
    """No far neighbour decides, and no point of the other phase."""
    profile = timed((("decode", 8, 1024, 1), {"A": 2.0, "B": 1.0}))
    found = pick(profile, SHAPE, *place, ["A", "B"])
    if measured:
        assert (found.backend, found.evidence) == ("B", "measured")
    else:
        assert (found.backend, found.evidence, found.because) == ("A", "default", FAR)
        assert (found.kernel, dict(found.knobs), found.point) == ("", {}, None)


def test_a_shape_that_was_never_timed_has_the_default() -> None:
    """The first of the default order, without knobs."""
    profile = timed((("decode", 8, 1024, 1), {"A": 2.0, "B": 1.0}))
    other = Shape(op="paged", heads=8, kv_heads=8, head_size=64)
    for document in (profile, None):
        found = pick(document, other, "decode", 8, 1024, 1, ["A", "B"])
        assert (found.backend, found.evidence, found.because) == ("A", "default", NOT_TIMED)


def test_a_shape_without_its_v_width_is_the_same_shape() -> None:
    """Which is K's where it is left out."""
    profile = timed((("decode", 8, 1024, 1), {"A": 2.0, "B": 1.0}))
    narrow = Shape(op="paged", heads=8, kv_heads=2, head_size=64)
    assert pick(profile, narrow, "decode", 8, 1024, 1, ["A", "B"]).backend == "B"


def test_only_the_eligible_are_picked_and_ties_go_to_the_earlier() -> None:
    """However fast the other was."""
    profile = timed((("decode", 8, 1024, 1), {"A": 1.0, "B": 0.99, "C": 0.1}))
    assert picked(profile, ("decode", 8, 1024, 1), "AB") == "A"
    assert picked(profile, ("decode", 8, 1024, 1), "BA") == "B"
    assert picked(profile, ("decode", 8, 1024, 1), "UA") == "U"
    assert picked(profile, ("decode", 8, 1024, 1), "UV") == "U"


def test_the_pick_says_what_it_beat_and_brings_its_knobs() -> None:
    """The backend next to it; alone, its own defaults."""
    place: Place = ("decode", 64, 8192, 1)
    profile = timed((place, {"A": 10.0, "B": 8.2}), knobs={"warps": 8})
    found = pick(profile, SHAPE, *place, ["A", "B"])
    assert found.because == "0.82x the time of A at decode B=64, S=8k, measured 2026-11-20"
    assert (dict(found.knobs), found.time_us) == ({"warps": 8}, 8.2)
    alone = pick(profile, SHAPE, *place, ["B"])
    assert alone.because.startswith("the only one timed, 0.50x the time of its own defaults")


@pytest.mark.parametrize(("timed_at", "asked"), [(10, 40), (40, 10), (3, 12), (300, 75)])
def test_four_times_apart_is_within_reach(timed_at: int, asked: int) -> None:
    """Whichever way the logarithms round; a count more is out of it."""
    profile = timed((("decode", timed_at, 1, 1), {"A": 2.0, "B": 1.0}))
    assert picked(profile, ("decode", asked, 1, 1)) == "B"
    beyond = asked + 1 if asked > timed_at else asked - 1
    assert picked(profile, ("decode", beyond, 1, 1)) == "A"


COUNTS = st.integers(1, 300)


@given(
    st.lists(st.tuples(COUNTS, COUNTS, COUNTS), min_size=1, max_size=12, unique=True),
    st.tuples(COUNTS, COUNTS, COUNTS),
)
def test_the_search_finds_what_looking_at_every_point_finds(
    places: list[tuple[int, int, int]], asked: tuple[int, int, int]
) -> None:
    """The distance of the point found is the least of those within reach."""
    profile = timed(*((("decode", *place), {"A": 1.0}) for place in places))
    found = Picker(profile).table(SHAPE, ["A"]).pick("decode", *asked)
    apart = [[log2(a / b) for a, b in zip(p, asked, strict=True)] for p in places]
    near = [sum(x * x for x in one) for one in apart if max(map(abs, one)) <= 2]
    if not near:
        assert found.point is None
        return
    assert found.point is not None
    axes = zip(found.point.place[1:], asked, strict=True)
    assert sum(log2(a / b) ** 2 for a, b in axes) == pytest.approx(min(near), abs=1e-9)


def test_counts_below_one_are_as_one() -> None:
    """An empty batch asks without an error."""
    profile = timed((("decode", 1, 1, 1), {"A": 2.0, "B": 1.0}))
    assert picked(profile, ("decode", 0, 0, 0)) == "B"


def test_a_picker_keeps_one_table_per_shape_and_eligible_list() -> None:
    """So that a program makes it once."""
    picker = Picker(timed((("decode", 1, 1, 1), {"A": 2.0})))
    assert picker.table(SHAPE, ["A"]) is picker.table(SHAPE, ("A",))
    assert picker.table(SHAPE, ["A"]) is not picker.table(SHAPE, ["A", "B"])
