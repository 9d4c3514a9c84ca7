"""The order that a profile gives: only eligible backends move, and each says why."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.decision import NOT_TIMED
from attnctl.profile import Picker, measured_order, shape_of
from attnctl.profile.ratio import times_text
from attnctl.registry import Rank, Registry
from attnctl.select import select
from tests.profile.two_backends import LAYER, backends, failing, machine, profile, sparse


@pytest.mark.parametrize("run", [(10.0, 10.05, 14.0), (10.06, 10.01, 14.1), (10.03, 10.02, 13.9)])
def test_within_two_percent_the_earlier_one_wins_every_time(run: tuple[float, ...]) -> None:
    """Noise does not change the winner between two runs."""
    order = measured_order(profile(run, names=("A", "B", "C")), LAYER, ["A", "B", "C"])
    assert order is not None
    assert order.names == ("A", "B", "C")


@pytest.mark.parametrize(
    ("eligible", "names", "passed"),
    [
        ("UAB", "UBA", ""),  # first by default, and never timed: it stays first
        ("AUB", "BUA", "U"),
        ("ABU", "BAU", ""),
        ("AUVB", "BUVA", "UV"),
    ],
)
def test_a_backend_that_was_not_timed_keeps_its_place(
    eligible: str, names: str, passed: str
) -> None:
    """The timed ones share out the places that they held among themselves."""
    order = measured_order(sparse({"A": 9.0, "B": 3.0}), LAYER, list(eligible))
    assert order is not None
    assert "".join(order.names) == names
    assert (order.fastest, set(order.because), order.passed) == ("B", {"A"}, set(passed))


def test_backends_that_were_timed_at_no_common_point_keep_the_default_order() -> None:
    """A time at one batch says nothing beside a time at another."""
    apart = sparse({"A": 9.0}, {"B": 3.0})
    assert measured_order(apart, LAYER, ["A", "B"]) is None
    assert measured_order(sparse({"A": 9.0, "C": 1.0}, {"B": 3.0}), LAYER, ["A", "B", "C"]) is None


def test_nothing_is_called_measured_that_was_not() -> None:
    """A pick that was never timed owes its place to the default order, and says so."""
    registry = backends()
    b3 = msgspec.structs.replace(
        registry.backends[0], name="B0", ranks=(Rank(platform="rocm", place=5),)
    )
    three = Registry((b3, *registry.backends))
    timed = sparse({"B1": 9.0, "B2": 3.0})
    decision = select(LAYER, machine(), three, profile=timed)
    assert decision.pick is not None
    assert (decision.pick.name, decision.pick.evidence) == ("B0", "default")
    assert [c.name for c in decision.candidates] == ["B0", "B2", "B1"]
    assert {one.evidence for one in decision.pick.beat} == {"default"}


def test_a_timed_pick_says_what_it_beat_by_time_and_what_it_only_passed() -> None:
    """B2 takes the place of B1, before a backend that nobody timed."""
    middle = msgspec.structs.replace(
        backends().backends[0], name="B15", ranks=(Rank(platform="rocm", place=15),)
    )
    three = Registry((*backends().backends, middle))
    pick = select(LAYER, machine(), three, profile=sparse({"B1": 9.0, "B2": 3.0})).pick
    assert pick is not None
    assert (pick.name, pick.evidence) == ("B2", "measured")
    assert pick.why.startswith("B2 over B1: 0.33x the time of B1")
    evidence = {one.name: (one.evidence, one.because) for one in pick.beat}
    assert evidence["B15"] == (
        "default",
        "not timed for this shape; a timed one stood before it",
    )


def test_a_shape_that_the_profile_does_not_hold_is_noted() -> None:
    """Only there: a shape with one usable timing is in the profile."""
    wide = msgspec.structs.replace(LAYER, kv_heads=8)
    timed = sparse({"B1": 9.0})
    assert select(wide, machine(), backends(), profile=timed).notes == (NOT_TIMED,)
    assert select(LAYER, machine(), backends(), profile=timed).notes == ()
    assert select(LAYER, machine(), backends()).notes == ()


def test_a_profile_reorders_what_is_eligible_and_says_by_how_much() -> None:
    """The registry's first choice loses to a measured faster one, with both ratios shown."""
    timed = profile((100.0, 73.0), (100.0, 59.0), names=("B1", "B2"))
    box = machine()
    assert select(LAYER, box, backends()).pick.name == "B1"
    pick = select(LAYER, box, backends(), profile=timed).pick
    assert pick is not None
    assert (pick.name, pick.evidence) == ("B2", "measured")
    assert pick.why == (
        "B2 over B1: 0.66x the time of B1 over 2 points (0.59x at decode B=8, S=1k, "
        "0.73x at decode B=1, S=1k), measured 2026-08-01"
    )


def test_a_ratio_never_reads_as_nothing() -> None:
    """Two decimals, or two digits that count."""
    ratios = (1.0, 0.655, 0.1, 0.0962, 0.00312, 310.0)
    assert [*map(times_text, ratios)] == ["1.00x", "0.66x", "0.10x", "0.096x", "0.0031x", "310.00x"]


def test_a_profile_never_makes_an_ineligible_backend_eligible() -> None:
    """However fast it was, a backend that fails a rule is not picked."""
    timed = profile((100.0, 1.0), names=("B1", "B2"))
    decision = select(LAYER, machine(), backends(b2_heads=128), profile=timed)
    assert decision.pick is not None
    assert decision.pick.name == "B1"


def test_a_shape_that_was_not_timed_keeps_the_default_order() -> None:
    """No far neighbour decides."""
    timed = profile((100.0, 1.0), names=("B1", "B2"))
    wide = msgspec.structs.replace(LAYER, kv_heads=8)
    assert measured_order(timed, wide, ["B1", "B2"]) is None


def test_a_backend_that_failed_at_most_points_goes_behind_the_timed_ones() -> None:
    """Though it stands first by default, and was the fastest where it ran."""
    timed = failing(({"B": 9.0}, "A"), ({"B": 9.0, "A": 1.0}, ""), ({"B": 9.0}, "A"))
    order = measured_order(timed, LAYER, ["A", "B", "U"])
    assert order is not None
    assert order.names == ("B", "A", "U")
    assert order.because == {"A": "it was out of the running at 2 of 3 points"}


def test_a_backend_that_was_timed_at_few_points_is_not_judged_as_a_whole() -> None:
    """One lucky point among many does not reorder; the others are compared where all were timed."""
    points = [({"A": 5.0, "B": 4.0}, "")] * 4 + [({"A": 5.0, "B": 4.0, "C": 1.0}, "")]
    order = measured_order(failing(*points), LAYER, ["A", "B", "C"])
    assert order is not None
    assert order.names == ("B", "A", "C")


def test_at_a_point_where_the_first_failed_another_is_picked() -> None:
    """And where it ran, or nobody looked at it, it keeps its place."""
    timed = failing(({"B": 9.0}, "A"), ({"B": 9.0, "A": 1.0}, "A"), ({"B": 9.0}, ""))
    table = Picker(timed).table(shape_of(LAYER), ["A", "B"])
    assert [pick.backend for pick in table.points] == ["B", "A", "A"]
    assert table.points[0].because.startswith("the only one timed")
