"""Points in the middle of neighbours whose settings do not serve each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from attnctl.profile.document import read_profile
from attnctl.profile.pick import Table
from attnctl.tune.exchange import Candidate
from attnctl.tune.finals import Final, Measured
from attnctl.tune.refine import MOST, middles
from attnctl.tune.session import tune
from attnctl.tune.settings import Knobs, Work
from attnctl.tune.workload import decode, prefill
from tests.tune.fake import FakeBench, Silent, key, request, task

SQUARE = decode((16, 32), (1000, 4000))
TILES: tuple[Knobs, ...] = ({}, *({"tile": tile} for tile in (64, 128, 256)))


def flips(work: Work, one: Candidate) -> float:
    """Few sequences want small tiles, many large ones; the default is slow."""
    best = 64 if work.batch <= 20 else 128
    return {16: 200.0, best: 100.0}.get(int(one.knobs.get("tile", 16)), 105.0)


def even(work: Work, one: Candidate) -> float:
    """The same tile is the best everywhere."""
    return 100.0 if one.knobs.get("tile") == 64 else 200.0


def tuned(path: Path, cost: Any, **more: Any) -> tuple[dict[tuple[int, int], Knobs], FakeBench]:
    bench = FakeBench(cost, settings=TILES)
    asked = {"loads": SQUARE, "backends": ("TRITON_ATTN",), **more}
    tune(request(path, **asked), Silent(), bench)
    (entry,) = read_profile(path).entries
    return {(one.batch, one.context): one.timings[0].knobs for one in entry.points}, bench


def test_a_point_is_added_in_the_middle_of_neighbours_that_disagree(tmp_path: Path) -> None:
    """In log space: 23 sequences of 2000 tokens; the reader of the profile finds it."""
    knobs, _ = tuned(tmp_path / "p.json", flips)
    assert knobs[16, 1000] == {"tile": 64}
    assert knobs[32, 4000] == {"tile": 128}
    assert knobs[23, 2000] == {"tile": 128}
    (entry,) = read_profile(tmp_path / "p.json").entries
    table = Table(entry, ["TRITON_ATTN"])
    assert table.pick("decode", 22, 1900).knobs == {"tile": 128}
    assert table.pick("decode", 17, 1000).knobs == {"tile": 64}


def test_none_is_added_where_one_setting_serves_all(tmp_path: Path) -> None:
    """It would tell nothing."""
    knobs, _ = tuned(tmp_path / "p.json", even)
    assert set(knobs) == {(one.batch, one.context) for one in SQUARE}


def test_only_what_was_good_around_is_timed_there(tmp_path: Path) -> None:
    """The default takes twice as long at all four corners."""
    _, bench = tuned(tmp_path / "p.json", flips)
    at = [timed for timed, _ in bench.timed]
    # rounds of the four corners, in which all four run; then the middle's
    assert at.count(key({})) < at.count(key({"tile": 64}))
    assert set(at[-3:]) == {key({"tile": tile}) for tile in (64, 128, 256)}


def test_a_budget_that_is_over_adds_none(tmp_path: Path) -> None:
    """The grid that was asked for comes first."""
    knobs, _ = tuned(tmp_path / "p.json", flips, budget_s=1e-9)
    assert set(knobs) == {(one.batch, one.context) for one in SQUARE}


def test_a_tune_that_was_killed_in_the_middle_goes_on_there(tmp_path: Path) -> None:
    """No finished point is timed again, the added ones among them."""

    class Stop(Silent):
        def step(self, step: Any) -> None:
            if step.done == 5:
                raise KeyboardInterrupt

    path = tmp_path / "p.json"
    asked = request(path, loads=SQUARE, backends=("TRITON_ATTN",))
    with pytest.raises(KeyboardInterrupt):
        tune(asked, Stop(), FakeBench(flips, settings=TILES))
    bench = FakeBench(flips, settings=TILES)
    tune(msgspec.structs.replace(asked, resume=True), Silent(), bench)
    assert bench.timed == []
    (entry,) = read_profile(path).entries
    assert (23, 2000) in {(one.batch, one.context) for one in entry.points}


def point(batch: int, context: int, times: dict[int, float]) -> tuple[Any, Measured]:
    (load,) = decode((batch,), (context,))
    one = task(load)
    finals = tuple(
        Final(
            backend="TRITON_ATTN",
            place=place,
            knobs={"tile": tile},
            page=16,
            median_us=time,
            iqr_us=0.0,
            runs=5,
        )
        for place, (tile, time) in enumerate(times.items())
    )
    found = Measured(shape_key=one.shape_key, load=load, finals=finals, pages=(16,))
    return one, found


def test_the_costliest_gap_is_first_and_the_settings_are_few() -> None:
    """Of twenty that are good the best eight, and each corner's own."""
    many = {tile: 100.0 + tile / 10 for tile in range(20)}
    lower = [point(batch, s, many) for batch in (1, 2) for s in (1000, 4000)]
    other = {**many, 0: 150.0, 19: 99.0}
    upper = [point(batch, s, other) for batch in (4,) for s in (1000, 4000)]
    last = [point(batch, s, {**many, 19: 300.0}) for batch in (8,) for s in (1000, 4000)]
    pairs = [*lower, *upper, *last]
    found = middles([one for one, _ in pairs], {one.key: m for one, m in pairs}, 1.02)
    assert [(one.task.load.batch, one.task.load.context) for one in found] == [(6, 2000), (3, 2000)]
    assert found[0].loss > found[1].loss > 0.02
    assert all(MOST <= len(one.keys) <= MOST + 4 for one in found)
    assert {"TRITON_ATTN//16/tile=0", "TRITON_ATTN//16/tile=19"} <= set(found[0].keys)


def test_prefill_and_points_that_make_no_square_are_left_alone() -> None:
    """A row of batches has no middle, and a prompt's length is its context."""
    apart = [point(16, 1000, {64: 100.0, 128: 150.0}), point(32, 1000, {64: 150.0, 128: 100.0})]
    measured = {one.key: found for one, found in apart}
    assert middles([one for one, _ in apart], measured, 1.02) == []
    loads = prefill((1, 128, 128), (2, 128, 128), (1, 512, 512), (2, 512, 512))
    tasks = [task(load) for load in loads]
    found = {
        one.key: msgspec.structs.replace(apart[place % 2][1], load=one.load)
        for place, one in enumerate(tasks)
    }
    assert middles(tasks, found, 1.02) == []
