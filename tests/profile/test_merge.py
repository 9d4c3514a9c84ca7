"""The union of profiles: what the later one says counts, nothing else is lost."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.exits import InputError
from attnctl.profile.canonical import canonical, encode
from attnctl.profile.document import parse
from attnctl.profile.merge import merge
from attnctl.profile.values import Profile, Versions
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
