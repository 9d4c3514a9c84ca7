"""What of a profile is compiled ahead: every setting that a batch may meet, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from attnctl.exits import Exit
from attnctl.machines import load as load_machine
from attnctl.profile.document import key_of, read_profile
from attnctl.profile.keys import Versions
from attnctl.profile.values import Entry, Point, Profile, Shape, Timing
from attnctl.registry import load
from attnctl.warming.loads import loads_of
from attnctl.warming.plan import NothingToWarmError, wanted
from tests.commands.running import ROOT
from tests.profile.factory import machine as usual_machine
from tests.tune.fake import machine

SHAPE = Shape(op="paged", heads=32, kv_heads=8, head_size=128)


def point(phase: Any, batch: int, context: int, query: int = 1, **knobs: Any) -> Point:
    timings = (
        Timing(backend="FLASH_ATTN", median_us=100.0),
        Timing(backend="TRITON_ATTN", median_us=50.0, knobs=knobs),
    )
    return Point(phase=phase, batch=batch, context=context, query=query, timings=timings)


def profile(*points: Point, **changes: Any) -> Profile:
    here = machine()
    fields: dict[str, Any] = {
        "name": "mine",
        "key": key_of(here, here.gpus[0]),
        "versions": Versions(),
        "entries": (Entry(shape=SHAPE, points=points),),
        **changes,
    }
    return Profile(**fields)


def test_each_setting_is_one_job_with_all_the_batches_that_it_serves() -> None:
    """Two settings of one backend and the defaults beyond their reach."""
    near, far = point("decode", 1, 64, fill=4), point("decode", 64, 4096, segments=8)
    asked = wanted("p.json", profile(near, far), machine(), 0, load())
    found = {(job.backend, job.setting): {str(load) for load in job.loads} for job in asked.jobs}
    assert set(found) == {
        ("TRITON_ATTN", "fill=4"),
        ("TRITON_ATTN", "segments=8"),
        ("FLASH_ATTN", "the defaults"),
    }
    assert {"decode B=1, S=64", "decode B=4, S=256"} <= found["TRITON_ATTN", "fill=4"]
    assert "decode B=64, S=4096" in found["TRITON_ATTN", "segments=8"]
    assert "decode B=1, S=4096" in found["FLASH_ATTN", "the defaults"]
    assert not asked.notes


SLOW = Timing(backend="FLASH_ATTN", median_us=100.0)


def on_others(*sizes: int, usual: int | None = None) -> Point:
    """A point whose backend was raced on these sizes of blocks as well, with knobs of its own."""
    first = {} if usual is None else {"block_size": usual}
    others = tuple(
        Timing(backend=name, median_us=time_us, knobs={"block_size": size, **more})
        for size in sizes
        for name, time_us, more in (("FLASH_ATTN", 90.0, {}), ("TRITON_ATTN", 60.0, {"fill": size}))
        if name == "TRITON_ATTN" or size != 16
    )
    timing = Timing(backend="TRITON_ATTN", median_us=50.0, knobs={**first, "fill": 4})
    return Point(phase="decode", batch=1, context=64, timings=(SLOW, timing), others=others)


def settings(*points: Point) -> set[tuple[str, int | None]]:
    """Of one backend that was timed on these points, what is warmed beyond the mere defaults."""
    asked = wanted("p.json", profile(*points), machine(), 0, load())
    mine = (job for job in asked.jobs if job.backend == "TRITON_ATTN" and job.knobs)
    return {(job.setting, job.block_size) for job in mine}


def test_what_was_timed_on_other_sizes_of_blocks_is_warmed_on_these() -> None:
    """A plan has them where the user names one, or where all layers are to have the same."""
    assert settings(on_others(64, 128)) == {
        ("fill=4", None),
        ("block_size=64 fill=64", 64),
        ("block_size=128 fill=128", 128),
    }


def test_the_profiles_own_size_is_not_warmed_twice() -> None:
    """It is what a plan has by itself; of the size that a backend has, only the race counts."""
    assert settings(on_others(16, usual=64)) == {
        ("block_size=64 fill=4", None),
        ("block_size=16 fill=16", 16),
    }


def test_the_defaults_on_their_own_size_are_warmed_beside_another_that_was_chosen() -> None:
    """A plan on that size runs nothing else."""
    timing = Timing(
        backend="TRITON_ATTN", median_us=5.0, default_us=9.0, knobs={"block_size": 128, "fill": 4}
    )
    asked = wanted(
        "p.json",
        profile(Point(phase="decode", batch=1, context=64, timings=(SLOW, timing))),
        machine(),
        0,
        load(),
    )
    mine = {(job.setting, job.block_size): job for job in asked.jobs if job.backend != "FLASH_ATTN"}
    assert mine.keys() == {("block_size=128 fill=4", None), ("block_size=16", 16)}
    assert mine["block_size=16", 16].knobs == {}


def test_an_encoder_keeps_no_cache_and_is_warmed_once() -> None:
    """Nobody lays out blocks for it."""
    shape = msgspec.structs.replace(SHAPE, features=("encoder_only",))
    entry = Entry(shape=shape, points=(on_others(64),))
    asked = wanted("p.json", profile(entries=(entry,)), machine(), 0, load())
    assert {job.block_size for job in asked.jobs} == {None}


def test_batches_are_the_points_and_the_powers_of_two_as_far_as_they_serve() -> None:
    """How a kernel is cut follows from the batch: what lies between and beyond is run as well."""
    found = {str(one) for one in loads_of(Entry(shape=SHAPE, points=(point("decode", 6, 300),)))}
    contexts = ("16", "32", "64", "128", "256", "512", "1024")
    powers = {f"decode B={b}, S={s}" for b in (1, 2, 4, 8, 16) for s in contexts}
    assert found == {"decode B=6, S=300", *powers}


def test_prompts_come_by_themselves_and_as_the_last_chunk_of_a_long_context() -> None:
    """Chunks of 16 to the largest that was timed, without decode where none was timed."""
    entry = Entry(shape=SHAPE, points=(point("prefill", 2, 1024, 64),))
    assert {str(one) for one in loads_of(entry)} == {
        "prefill B=2, S=1024, q=64",
        *(f"prefill B=1, S={s}, q={q}" for q in (16, 32, 64) for s in (q, 1024)),
    }


def test_a_state_is_run_once_for_all_contexts() -> None:
    """Its kernels do not see how long the context is."""
    shape = Shape(op="gdn", state=((3, 8192), (32, 128, 128)))
    entry = Entry(shape=shape, points=(point("decode", 2, 4096),))
    (point_itself, *others) = (str(one) for one in loads_of(entry))
    assert point_itself == "decode B=2, S=4096"
    assert others == [f"decode B={batch}, S=16384" for batch in (1, 2, 4, 8)]


def test_a_processor_needs_one_batch_a_setting() -> None:
    """Its kernels are one source, whatever the shapes."""
    here = usual_machine("zen3")
    timing = Timing(backend="CPU_ATTN", median_us=9.0)
    points = tuple(
        Point(phase="decode", batch=b, context=512, timings=(timing,)) for b in (1, 2, 4)
    )
    mine = profile(key=key_of(here, None), entries=(Entry(shape=SHAPE, points=points),))
    (job,) = wanted("p.json", mine, here, 0, load()).jobs
    assert (job.backend, len(job.loads)) == ("CPU_ATTN", 1)


def test_a_profile_of_another_device_is_a_no_in_one_sentence() -> None:
    """Exit code 1, with both devices and what to do."""
    shipped = ROOT / "profiles" / "tuned" / "h200.json"
    with pytest.raises(NothingToWarmError) as caught:
        wanted("h200.json", read_profile(shipped), load_machine("zen3"), 0, load())
    assert caught.value.exit_code == Exit.NO
    text = str(caught.value)
    assert text.startswith("h200.json: it was timed on nvidia sm_90 10de:2335, 132 units, and")
    assert "this is AMD zen3" in text
    assert "attnctl profile list" in text


def test_without_torch_that_is_the_reason() -> None:
    """Not each shape's rules, all of which ask for it."""
    here = msgspec.structs.replace(machine(), packages={})
    with pytest.raises(NothingToWarmError, match="torch is not installed, and no kernel runs"):
        wanted("p.json", profile(point("decode", 1, 64)), here, 0, load())


def test_dead_timings_are_left_out_and_said() -> None:
    """Of a profile all of whose kernels changed nothing is left, which is a no."""
    entry = Entry(
        shape=SHAPE,
        points=(point("decode", 1, 64),),
        kernels={"TRITON_ATTN": "0" * 12, "FLASH_ATTN": "0" * 12},
    )
    with pytest.raises(NothingToWarmError, match=r"timings of paged .* are dead"):
        wanted("p.json", profile(entries=(entry,)), machine(), 0, load())


def test_a_stale_profile_is_used_and_said() -> None:
    """Another Triton compiles the same settings."""
    old = profile(point("decode", 1, 64), versions=Versions(triton="3.0.0"))
    asked = wanted("p.json", old, machine(), 0, load())
    assert asked.jobs
    assert [note for note in asked.notes if "p.json is stale here: triton 3.0.0" in note]
