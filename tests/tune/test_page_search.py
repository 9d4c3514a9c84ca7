"""One size of the cache's blocks for a layer shape: what a tune tries on each, and writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from attnctl.layer import Options
from attnctl.profile.blocks import timed_sizes
from attnctl.profile.document import read_profile
from attnctl.profile.pick import Table
from attnctl.profile.values import Entry
from attnctl.tune.exchange import Candidate, Verdict
from attnctl.tune.offers import offers
from attnctl.tune.search import Judge, tune_point
from attnctl.tune.session import tune
from attnctl.tune.settings import Knobs, Setting, Work
from attnctl.tune.workload import Load, decode
from tests import machine_factory as box
from tests.tune.fake import FakeBench, Silent, key, request, task

FLASH, TRITON = "FLASH_ATTN", "TRITON_ATTN"

SIZES: list[Knobs] = [{}, {"tile": 64}, {"block_size": 128}, {"block_size": 128, "tile": 64}]


class Shared(FakeBench):
    """An H200 on which TRITON_ATTN offers two sizes and FLASH_ATTN names none of its own."""

    def site(self) -> Any:
        return msgspec.structs.replace(super().site(), shared_memory_bytes=1 << 17)


def cost(work: Work, one: Candidate) -> float:
    """Wide blocks are 6 % faster in decode; FLASH_ATTN wins the prefill on either size."""
    if work.phase == "prefill":
        return 100.0 if one.backend == FLASH else 150.0
    if one.backend == FLASH:
        return 130.0
    return (94.0 if one.page == 128 else 100.0) + (0.0 if one.knobs.get("tile") == 64 else 5.0)


def test_a_size_that_one_backend_asks_for_is_tried_with_all_that_take_it() -> None:
    """FLASH_ATTN names no sizes and takes every multiple of 16."""
    offered, faults = offers(task(backends=(FLASH, TRITON)), Shared(settings=SIZES))
    assert faults == {}
    assert [(one.rival.backend, [one.page(s) for s in one.settings]) for one in offered] == [
        (FLASH, [16, 128]),
        (TRITON, [16, 16, 128, 128]),
    ]
    (flash, _) = offered
    assert flash.candidate(flash.settings[1]).key == key({"block_size": 128}, FLASH, 128)


def test_a_size_that_a_backend_does_not_take_is_not_offered_to_it() -> None:
    """24 is no multiple of 16."""
    sizes: list[Knobs] = [{}, {"block_size": 24}]
    offered, _ = offers(task(backends=(FLASH, TRITON)), Shared(settings=sizes))
    assert [len(one.settings) for one in offered] == [1, 2]


def test_rival_kernels_are_tried_on_the_other_size_too() -> None:
    """Each by its defaults."""

    class Kernels(Shared):
        def settings(self, work: Work, backend: str) -> Any:
            if backend == FLASH:
                return (Setting(), Setting(kernel="fa2"))
            return super().settings(work, backend)

    offered, _ = offers(task(backends=(FLASH, TRITON)), Kernels(settings=SIZES))
    keys = [offered[0].candidate(one).key for one in offered[0].settings]
    assert keys == [
        "FLASH_ATTN//16/",
        "FLASH_ATTN/fa2/16/",
        "FLASH_ATTN//128/block_size=128",
        "FLASH_ATTN/fa2/128/block_size=128",
    ]


def test_every_size_has_a_time_however_short_the_budget_is() -> None:
    """The first setting of each backend on each size is judged and timed, late or not."""
    many: list[Knobs] = [
        *({"tile": tile} if tile else {} for tile in range(40)),
        *({"block_size": 128, "tile": tile} for tile in range(40)),
    ]
    bench = Shared(settings=many)
    found = tune_point(task(backends=(FLASH, TRITON)), bench, Judge(), budget_s=0.0)
    assert {(one.backend, one.page) for one in found.finals} == {
        (backend, page) for backend in (FLASH, TRITON) for page in (16, 128)
    }
    assert found.pages == (16, 128)


def test_a_time_that_ends_meets_all_sizes_alike() -> None:
    """Candidates are tried in turns of the sizes, not one size after the other."""
    many: list[Knobs] = [
        *({"tile": tile} if tile else {} for tile in range(40)),
        *({"block_size": 128, "tile": tile} for tile in range(40)),
    ]
    bench = Shared(settings=many)
    tune_point(task(), bench, Judge())
    first = [name.split("/")[2] for name, _ in bench.timed[:16]]
    assert sorted(first) == ["128"] * 8 + ["16"] * 8


def test_a_point_that_races_one_size_times_its_settings_and_the_defaults() -> None:
    """The rest is counted in one line of the profile."""
    found = tune_point(task(), Shared(settings=SIZES), Judge(), page=128)
    assert {(one.page, one.place) for one in found.finals} == {(16, 0), (128, 2), (128, 3)}
    assert found.pages == (128,)
    assert [out.detail for out in found.out] == [
        "its size of the cache's blocks lost at other points"
    ]


def tuned_entry(tmp_path: Path, bench: FakeBench, loads: tuple[Load, ...], **more: Any) -> Entry:
    output = tmp_path / "p.json"
    asked = request(output, loads=loads, backends=(FLASH, TRITON), **more)
    tune(asked, Silent(), bench)
    (entry,) = read_profile(output).entries
    return entry


MANY = (
    *decode((1, 2, 4, 8, 16, 32, 64, 128, 256, 512), (256, 1024, 4096)),
    Load(phase="prefill", batch=1, context=512, query=512),
    Load(phase="prefill", batch=1, context=2048, query=2048),
)


@pytest.mark.parametrize("budget_s", [None, 60.0, 1e-6])
def test_all_points_and_backends_of_a_profile_have_one_size(
    tmp_path: Path, budget_s: float | None
) -> None:
    """Whatever the budget: the library lays out one cache, and every pick was timed on it."""
    entry = tuned_entry(tmp_path, Shared(cost, settings=SIZES), MANY, budget_s=budget_s)
    assert len(entry.points) == len(MANY)
    for one in entry.points:
        assert [timing.backend for timing in one.timings] == [FLASH, TRITON]
        assert {timing.knobs.get("block_size") for timing in one.timings} == {128}
    assert Table(entry, (FLASH, TRITON)).block_size == 128


def test_with_a_budget_the_other_points_leave_the_losing_size_out(tmp_path: Path) -> None:
    """Of 32 points 16 race both sizes; the other 16 time one setting less, and say so."""
    bench = Shared(cost, settings=SIZES)
    entry = tuned_entry(tmp_path, bench, MANY, budget_s=60.0)
    counts = [one.timing(TRITON).tried for one in entry.points]
    assert (counts.count(4), counts.count(3)) == (16, 16)
    said = {one.detail for point in entry.points for one in point.rejected}
    assert said == {"other sizes of the cache's blocks lost at other points: 1 setting not tried"}


def test_a_backend_that_failed_on_the_chosen_size_is_not_picked(tmp_path: Path) -> None:
    """It stands first in the default order, and must not pass for one that was never tried."""
    failed = {key({"block_size": 128}, FLASH, 128): Verdict(fault="wrong", detail="off")}
    bench = Shared(cost, settings=SIZES, faults=failed)
    entry = tuned_entry(tmp_path, bench, decode((1, 4, 16), (1024, 4096)))
    assert {pick.backend for pick in Table(entry, (FLASH, TRITON)).points} == {TRITON}
    for one in entry.points:
        assert [timing.backend for timing in one.timings] == [TRITON]
        assert ("FLASH_ATTN", "wrong") in {(out.backend, out.why) for out in one.rejected}


def test_what_was_raced_on_the_size_that_lost_is_kept_beside(tmp_path: Path) -> None:
    """Each backend's best on it, so that one size for several layer shapes can be chosen later."""
    entry = tuned_entry(tmp_path, Shared(cost, settings=SIZES), MANY, budget_s=60.0)
    raced = [one for one in entry.points if one.others]
    assert len(raced) == 16
    for one in raced:
        assert [(t.backend, t.block_size) for t in one.others] == [(FLASH, None), (TRITON, None)]
    first = raced[0]
    assert (first.phase, first.others[1].knobs, first.others[1].median_us) == (
        *("decode", {"tile": 64}, 100.0),
    )
    assert first.timing(TRITON).median_us == 94.0


def test_a_tune_of_one_size_says_which(tmp_path: Path) -> None:
    """With --block-size 64 no timing may pass for one of the 16 that the backends have alone."""
    own: list[Knobs] = [{}, {"tile": 64}]
    loads = decode((1, 4), (1024,))
    bench = Shared(cost, settings=own)
    entry = tuned_entry(tmp_path, bench, loads, options=Options(block_size=64))
    for one in entry.points:
        assert [(t.backend, t.block_size, t.default_block) for t in one.timings] == [
            (FLASH, 64, 64),
            (TRITON, 64, 64),
        ]
        assert one.others == ()
    assert timed_sizes(entry, {FLASH: 16, TRITON: 16}) == (64,)


def test_a_size_that_a_package_asks_for_stands_in_the_timings(tmp_path: Path) -> None:
    """FA2's own package has blocks of 256, which a reader would else take for the declared 16."""
    alone = box.cuda(8, packages=("torch", "triton", "flash_attn"))
    bench = Shared(lambda _, one: 50.0 if one.page == 256 else 100.0, settings=[{}])
    entry = tuned_entry(tmp_path, bench, decode((1, 4), (1024,)), machine=alone)
    for one in entry.points:
        assert [(t.backend, t.block_size, t.default_block) for t in one.timings] == [
            (FLASH, 256, 256),
            (TRITON, 256, None),
        ]
        assert [(t.backend, t.block_size) for t in one.others] == [(TRITON, None)]
    assert timed_sizes(entry, {FLASH: 16, TRITON: 16}) == (16, 256)
