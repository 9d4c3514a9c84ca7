"""Which setting stands for a point: the one that serves it and what lies around it."""

from __future__ import annotations

from attnctl.tune.between import Around, octaves
from attnctl.tune.finals import Final, Measured
from attnctl.tune.workload import Load

WIDE, NARROW = {"keys": 128}, {"keys": 32}


def final(keys: int, median_us: float, *, page: int = 128, iqr_us: float = 0.0) -> Final:
    """The default is the setting of 16 keys."""
    places = (16, 32, 128)
    return Final(
        backend="TRITON_ATTN",
        place=places.index(keys),
        knobs={} if keys == 16 else {"keys": keys},
        page=page,
        median_us=median_us,
        iqr_us=iqr_us,
        runs=5,
    )


def point(
    batch: int, *finals: Final, context: int = 1000, dropped: tuple[Final, ...] = ()
) -> Measured:
    load = Load(phase="decode", batch=batch, context=context)
    return Measured(shape_key="s", load=load, finals=finals, dropped=dropped)


def chosen(points: list[Measured], place: int) -> dict[str, int | str | bool]:
    found = Around(points, 128).winner(place, "TRITON_ATTN")
    assert found is not None
    return found.knobs


def test_of_two_that_are_tied_here_the_one_is_kept_that_loses_less_around() -> None:
    """Batches between this point and the next would pay for the other."""
    steady, lucky = final(32, 100.0), final(128, 98.5)
    around = [point(batch, final(32, 100.0), final(128, 125.0)) for batch in (16, 32)]
    points = [around[0], point(24, steady, lucky), around[1]]
    assert chosen(points, 1) == NARROW
    assert chosen([point(24, steady, lucky)], 0) == WIDE


def test_a_setting_that_wins_beyond_the_tie_is_kept_whatever_it_costs_around() -> None:
    """The point itself is met most."""
    around = [point(batch, final(32, 100.0), final(128, 125.0)) for batch in (16, 64)]
    points = [around[0], point(32, final(32, 100.0), final(128, 97.0)), around[1]]
    assert chosen(points, 1) == WIDE
    assert chosen(points, 0) == NARROW


def test_the_default_keeps_its_place_within_the_tie() -> None:
    """As in every tie: what nobody has to set is preferred."""
    here = point(24, final(16, 101.0), final(32, 100.0), final(128, 100.0))
    assert chosen([here], 0) == {}


def test_the_times_of_what_a_neighbour_dropped_early_count() -> None:
    """Its few rounds tell that it loses there."""
    around = [point(batch, final(32, 100.0), dropped=(final(128, 125.0),)) for batch in (16, 32)]
    points = [around[0], point(24, final(32, 100.0), final(128, 98.5)), around[1]]
    assert chosen(points, 1) == NARROW


def test_a_setting_that_a_neighbour_lacks_is_judged_by_the_others() -> None:
    """A budget that ended there says nothing against it."""
    points = [point(24, final(32, 100.5), final(128, 100.0)), point(32, final(32, 100.0))]
    assert chosen(points, 0) == WIDE
    worse = point(16, final(32, 100.0), final(128, 110.0))
    assert chosen([*points, worse], 0) == NARROW


def test_another_size_of_blocks_and_another_phase_do_not_count() -> None:
    """The cache of the layer has one size, and a prefill has knobs of its own."""
    here = point(24, final(32, 100.0), final(128, 90.0), final(16, 50.0, page=16))
    assert chosen([here], 0) == WIDE
    here = point(24, final(32, 100.5), final(128, 100.0))
    beside = point(32, final(32, 100.0), final(128, 101.0))
    assert chosen([here, beside], 0) == NARROW
    prefill = Load(phase="prefill", batch=24, context=1000, query=1000)
    other = Measured(shape_key="s", load=prefill, finals=(final(32, 90.0), final(128, 10.0)))
    assert chosen([here, beside, other], 0) == NARROW
    assert octaves(here.load, other.load) == float("inf")


def test_no_setting_of_that_size_is_no_winner() -> None:
    """The backend is left out of the point then, with the reason."""
    found = Around([point(1, final(16, 10.0, page=16))], 128)
    assert found.winner(0, "TRITON_ATTN") is None
    assert found.winner(0, "FLASH_ATTN") is None


def test_within_the_noise_the_earlier_setting_is_kept() -> None:
    """Five rounds with an interquartile range of 20 % do not tell 5 % apart."""
    points = [point(1, final(16, 100.0, iqr_us=20.0), final(128, 95.0, iqr_us=20.0))]
    assert chosen(points, 0) == {}
    points = [point(1, final(16, 100.0), final(128, 95.0))]
    assert chosen(points, 0) == WIDE


def test_a_workload_is_as_far_away_as_a_reader_of_the_profile_finds() -> None:
    """Twice the batch and half the context are the square root of two octaves."""
    one = Load(phase="decode", batch=8, context=1000)
    assert octaves(one, Load(phase="decode", batch=16, context=500)) == 2**0.5
