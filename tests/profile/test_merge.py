"""The union of profiles: what the later one says counts, nothing else is lost."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.exits import InputError
from attnctl.profile.canonical import canonical, encode
from attnctl.profile.document import parse
from attnctl.profile.keys import Versions
from attnctl.profile.merge import merge, without
from attnctl.profile.ranking import block_asked
from attnctl.profile.values import Point, Profile, Timing
from tests.profile.factory import GRID, profile


def places(document: Profile) -> set[tuple[str, tuple[str, int, int, int]]]:
    return {(str(e.shape), p.place) for e in canonical(document).entries for p in e.points}


def test_both_shapes_and_all_points_are_there() -> None:
    """Two shapes and two halves of a grid make the whole."""
    one = profile("llama-3.1-8b", grid=GRID[:9])
    other = profile("llama-3.1-8b", "gpt-oss-20b", grid=GRID[6:])
    assert places(merge(one, other)) == places(one) | places(other)


def test_merging_with_itself_changes_nothing() -> None:
    """Byte for byte."""
    one = profile("llama-3.1-8b", "gpt-oss-20b")
    assert encode(merge(one, one)) == encode(one)


@pytest.mark.parametrize("turned", [False, True])
def test_the_later_measured_counts_whichever_is_named_first(turned: bool) -> None:
    """Its time, its name and its day; points of the earlier keep theirs."""
    older = profile(measured="2026-11-01", name="older")
    newer = profile(measured="2026-11-09", name="newer", grid=GRID[:1], faster={"FLASH_ATTN": 0.1})
    found = canonical(merge(newer, older) if turned else merge(older, newer))
    assert (found.name, found.measured) == ("newer", "2026-11-09")
    points = {point.place: point for point in found.entries[0].points}
    assert points[GRID[0]].pick == "FLASH_ATTN"
    assert points[GRID[0]].measured == ""
    assert points[GRID[1]].measured == "2026-11-01"
    assert len(points) == len(GRID)
    assert parse(encode(found), "p") == found


@pytest.mark.parametrize("turned", [False, True])
def test_the_day_of_a_point_counts_and_not_that_of_its_document(turned: bool) -> None:
    """A document of November that holds a point of January, against one of June."""
    old = profile(measured="2026-11-20", grid=GRID[:2])
    (entry,) = old.entries
    first, second = entry.points
    points = (msgspec.structs.replace(first, measured="2026-01-01"), second)
    old = msgspec.structs.replace(old, entries=(msgspec.structs.replace(entry, points=points),))
    june = profile(measured="2026-06-01", grid=GRID[:2], faster={"FLASH_ATTN": 0.1})
    found = canonical(merge(june, old) if turned else merge(old, june))
    assert found.measured == "2026-11-20"
    (whole,) = found.entries
    assert [point.measured for point in whole.points] == ["2026-06-01", ""]
    times = [point.timing("FLASH_ATTN").median_us for point in whole.points]
    wanted = [june.entries[0].points[0], second]
    assert times == pytest.approx(
        [point.timing("FLASH_ATTN").median_us for point in wanted],
        abs=1e-3,
    )


def test_in_order_what_is_named_later_counts_whatever_its_day() -> None:
    """What a tune has just measured, on a clock that was set back."""
    before = profile(measured="2026-11-20")
    after = profile(measured="2020-01-01", grid=GRID[:1], faster={"FLASH_ATTN": 0.1})
    found = canonical(merge(before, after, in_order=True))
    points = {point.place: point for point in found.entries[0].points}
    assert found.measured == "2026-11-20"
    assert (points[GRID[0]].pick, points[GRID[0]].measured) == ("FLASH_ATTN", "2020-01-01")
    assert points[GRID[1]].measured == ""
    assert len(points) == len(GRID)


@pytest.mark.parametrize("living", ["older", "newer"])
def test_a_dead_timing_takes_no_living_ones_place(living: str) -> None:
    """A later document of another kernel than the one that is here adds what of it still holds."""
    older, newer = (
        profile(),
        profile(
            measured="2026-11-25",
            grid=GRID[:1],
        ),
    )
    (entry,) = newer.entries
    changed = msgspec.structs.replace(entry, kernels={**entry.kernels, "TRITON_ATTN": "other"})
    newer = msgspec.structs.replace(newer, entries=(changed,))
    kernels = {"older": older.entries[0].kernels["TRITON_ATTN"], "newer": "other"}
    (found,) = canonical(merge(older, newer, here={"TRITON_ATTN": kernels[living]})).entries
    timed = {point.place: {t.backend for t in point.timings} for point in found.points}
    assert found.kernels["TRITON_ATTN"] == kernels[living]
    assert ("TRITON_ATTN" in timed[GRID[1]]) == (living == "older")
    assert all("TRITON_ATTN" in timed[GRID[0]] and "FLASH_ATTN" in one for one in timed.values())


def test_a_backend_that_only_the_earlier_timed_at_a_point_stays() -> None:
    """Timings are united by backend."""
    older, newer = profile(), profile()
    (entry,) = newer.entries
    points = tuple(
        msgspec.structs.replace(p, timings=tuple(t for t in p.timings if t.backend == "FLASH_ATTN"))
        for p in entry.points
    )
    newer = msgspec.structs.replace(newer, entries=(msgspec.structs.replace(entry, points=points),))
    assert encode(merge(older, newer)) == encode(older)


def test_timings_of_a_kernel_that_the_later_knows_changed_go() -> None:
    """Only those of that kernel; the others stay at every point."""
    older, newer = profile(), profile(grid=GRID[:1])
    (entry,) = newer.entries
    changed = msgspec.structs.replace(entry, kernels={**entry.kernels, "TRITON_ATTN": "other"})
    newer = msgspec.structs.replace(newer, entries=(changed,))
    (found,) = canonical(merge(older, newer)).entries
    timed = {point.place: {t.backend for t in point.timings} for point in found.points}
    assert "TRITON_ATTN" in timed[GRID[0]]
    assert "TRITON_ATTN" not in timed[GRID[1]]
    assert "FLASH_ATTN" in timed[GRID[1]]
    assert found.kernels["TRITON_ATTN"] == "other"


def test_profiles_of_two_devices_or_compilers_do_not_mix() -> None:
    """One sentence names what differs."""
    here = profile()
    with pytest.raises(InputError, match="one device only"):
        merge(here, profile(on="h200"))
    other = msgspec.structs.replace(here, versions=Versions(torch="2.14.0+cu130", triton="3.6.0"))
    with pytest.raises(InputError, match=r"versions\.triton is 3\.6\.0 and invented has"):
        merge(here, other)


def test_another_driver_mixes() -> None:
    """It is a note, and the later one's stands."""
    one = msgspec.structs.replace(profile(), versions=Versions(torch="2", driver="570"))
    other = msgspec.structs.replace(profile(), versions=Versions(torch="2", driver="580"))
    assert merge(one, other).versions.driver == "580"


def sized(*timings: Timing, others: tuple[Timing, ...] = ()) -> Profile:
    """One shape at one point."""
    whole = profile(grid=GRID[:1])
    (entry,) = whole.entries
    point = msgspec.structs.replace(
        entry.points[0], timings=timings, others=others, rejected=(), pick=""
    )
    entry = msgspec.structs.replace(entry, points=(point,))
    return msgspec.structs.replace(whole, entries=(entry,))


def on(tokens: int | None, time_us: float) -> Timing:
    knobs = {"block_size": tokens} if tokens else {}
    return Timing(backend="TRITON_ATTN", median_us=time_us, knobs=knobs)


def test_a_time_on_other_blocks_is_kept_beside_the_later_one() -> None:
    """Of each size the later counts; the sizes stand in rising order in the document."""
    older = sized(on(None, 10.0), others=(on(128, 12.0), on(64, 11.0)))
    newer = sized(on(128, 9.0), others=(on(32, 13.0),))
    found = canonical(merge(older, newer))
    (point,) = found.entries[0].points
    assert point.timings == (on(128, 9.0),)
    assert point.others == (on(None, 10.0), on(32, 13.0), on(64, 11.0))
    assert parse(encode(found), "p") == found
    again = canonical(merge(newer, sized(on(32, 7.0))))
    assert again.entries[0].points[0].timings == (on(32, 7.0),)
    assert again.entries[0].points[0].others == (on(128, 9.0),)


def tuned(
    tokens: int, first: int, *times: float, others: tuple[int, float] | None = None
) -> Profile:
    """What a tune that chose this size leaves: points of batches from `first` on."""
    made = profile()
    beside = (on(*others),) if others else ()
    points = tuple(
        Point(phase="decode", batch=batch, context=64, timings=(on(tokens, us),), others=beside)
        for batch, us in enumerate(times, start=first)
    )
    entry = msgspec.structs.replace(made.entries[0], points=points, order=("TRITON_ATTN",))
    return msgspec.structs.replace(made, entries=(entry,))


def test_tunes_on_two_sizes_of_blocks_are_settled_by_what_was_timed_on_both() -> None:
    """The later one's points are fewer and faster; where it was not timed the older ones stay."""
    older = tuned(16, 1, 9.0, 9.0, 9.0)
    slow, fast = (merge(older, tuned(128, 3, us)).entries[0] for us in (12.0, 6.0))
    assert block_asked(slow.points, slow.order) == 16
    assert [(one.timings, one.others) for one in slow.points][2] == (
        (on(16, 9.0),),
        (on(128, 12.0),),
    )
    assert block_asked(fast.points, fast.order) == 128
    assert [(one.timings, one.others) for one in fast.points][2] == (
        (on(128, 6.0),),
        (on(16, 9.0),),
    )
    assert [one.timings for one in fast.points[:2]] == [(on(16, 9.0),)] * 2


def test_what_was_raced_beside_comes_in_front_once_its_size_is_chosen() -> None:
    """A merged entry shows, picks and compiles what it will run."""
    raced = tuned(16, 1, 9.0, 9.0, others=(128, 7.0))
    found = merge(raced, tuned(128, 8, 5.0)).entries[0]
    assert [one.timings for one in found.points] == [(on(128, 7.0),)] * 2 + [(on(128, 5.0),)]
    assert found.points[0].others == (on(16, 9.0),)


def test_what_is_taken_out_of_a_point_goes_on_all_sizes() -> None:
    """A kernel that was edited is another one with any blocks."""
    (point,) = sized(on(None, 10.0), others=(on(128, 12.0),)).entries[0].points
    gone = without(point, {"TRITON_ATTN"})
    assert (gone.timings, gone.others) == ((), ())


def test_two_times_of_one_backend_on_one_size_are_a_slip() -> None:
    """Of a size that was chosen nothing stands beside."""
    with pytest.raises(ValueError, match="two timings on one size of blocks"):
        sized(on(128, 9.0), others=(on(128, 12.0),))
