"""What a tune writes: complete, the same bytes for the same times, joined with what was there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from attnctl.exits import Exit, InputError
from attnctl.profile.document import read_profile
from attnctl.tune.exchange import Candidate, Site, Verdict
from attnctl.tune.session import tune
from attnctl.tune.settings import Knobs, Setting, Work
from tests.commands.running import ROOT
from tests.tune.fake import GRID, POINTS, FakeBench, Silent, bowl, key, request, tasks


def test_every_point_has_each_backends_time_knobs_and_default(tmp_path: Path) -> None:
    """What the search found on the known device stands in the document."""
    output = tmp_path / "p.json"
    wrong = {key(GRID[0]): Verdict(fault="wrong", detail="off")}
    tune(request(output), Silent(), FakeBench(faults=wrong))
    (entry,) = read_profile(output).entries
    assert len(entry.points) == len(POINTS)
    for point in entry.points:
        timing = point.timing("TRITON_ATTN")
        assert timing is not None
        assert timing.knobs == {"tile": 64, "warps": 4}
        assert (timing.median_us, timing.default_us) == (100.0, 200.0)
        assert timing.tried == len(GRID)
        flex = point.timing("FLEX_ATTENTION")
        assert flex is not None
        assert flex.knobs == {}
        assert [(one.why, one.knobs, one.detail) for one in point.rejected] == [
            ("wrong", GRID[0], "off")
        ]
    assert set(entry.kernels) == {"TRITON_ATTN", "FLEX_ATTENTION"}


def test_each_time_names_its_clock_and_a_host_that_is_slower_than_the_gpu(tmp_path: Path) -> None:
    """A launch that is hidden behind a longer run is not told."""
    for host_us, told in ((150.0, {100.0: 150.0, 200.0: None}), (50.0, {100.0: None})):
        output = tmp_path / f"{host_us}.json"
        cost = bowl if host_us == 50.0 else _slow_prefill
        asked = request(output, backends=("TRITON_ATTN",))
        tune(asked, Silent(), FakeBench(cost, host_us=host_us))
        (entry,) = read_profile(output).entries
        clocks = {(point.phase, one.clock) for point in entry.points for one in point.timings}
        assert clocks == {("decode", "graph"), ("prefill", "queue")}
        found = {one.median_us: one.host_us for point in entry.points for one in point.timings}
        assert found == told


def _slow_prefill(work: Work, candidate: Candidate) -> float:
    return bowl(work, candidate) * (2 if work.phase == "prefill" else 1)


def test_versions_are_those_of_the_child_that_timed(tmp_path: Path) -> None:
    """Not those that the command's own environment has."""
    output = tmp_path / "p.json"
    tune(request(output), Silent(), FakeBench())
    versions = read_profile(output).versions
    assert (versions.torch, versions.triton) == ("2.11.0", "3.6.0")


def test_the_same_times_give_the_same_bytes(tmp_path: Path) -> None:
    """No time of day, no order of a dictionary."""
    for name in ("a.json", "b.json"):
        tune(request(tmp_path / name), Silent(), FakeBench(noise=0.1, seed=3))
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_second_tune_adds_to_the_profile(tmp_path: Path) -> None:
    """Other points and other backends join; a point timed again is replaced."""
    output = tmp_path / "p.json"
    tune(request(output, loads=POINTS[:2]), Silent(), FakeBench())
    twice = FakeBench(lambda work, one: 2 * bowl(work, one))
    tune(request(output, loads=POINTS[1:], backends=("TRITON_ATTN",)), Silent(), twice)
    (entry,) = read_profile(output).entries
    times = {point.context: point for point in entry.points}
    assert {c: p.timing("TRITON_ATTN").median_us for c, p in times.items()} == {
        1024: 100.0,
        4096: 200.0,
        2048: 200.0,
    }
    assert times[4096].timing("FLEX_ATTENTION") is not None
    assert times[2048].timing("FLEX_ATTENTION") is None


def test_two_tunes_that_end_at_once_keep_the_union(tmp_path: Path) -> None:
    """Eight processes write one file, each points of its own."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom attnctl.tune.session import tune\n"
        "from attnctl.tune.workload import decode\n"
        "from tests.tune.fake import FakeBench, Silent, request\n"
        "load = decode((int(sys.argv[2]),), (512, 2048))\n"
        "tune(request(Path(sys.argv[1]), loads=load), Silent(), FakeBench())\n"
    )
    output = tmp_path / "p.json"
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(output), str(batch)], cwd=ROOT)
        for batch in range(1, 9)
    ]
    assert [process.wait(120) for process in running] == [0] * 8
    (entry,) = read_profile(output).entries
    assert {point.batch for point in entry.points} == set(range(1, 9))
    assert len(entry.points) == 16


def test_another_devices_profile_is_refused_before_anything_is_timed(tmp_path: Path) -> None:
    """Hours of measuring must not end in a refusal."""
    output = tmp_path / "p.json"
    tune(request(output), Silent(), FakeBench())
    output.write_text(output.read_text().replace("10de:2335", "10de:2330"))
    bench = FakeBench()
    with pytest.raises(InputError, match="name another --output"):
        tune(request(output), Silent(), bench)
    assert bench.timed == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"points"', '"pints"', "adding to the file would lose it: correct it, or drop it with: "),
        ("2.11.0", "2.10.0", "times of two compilers do not mix; keep two files"),
    ],
    ids=["an entry that does not read", "another torch"],
)
def test_a_profile_that_cannot_take_the_times_is_refused_before_any_is_measured(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    """And it stays as it was."""
    output = tmp_path / "p.json"
    tune(request(output), Silent(), FakeBench())
    text = output.read_text()
    assert old in text
    output.write_text(text.replace(old, new, 1))
    bench = FakeBench()
    with pytest.raises(InputError, match=said):
        tune(request(output), Silent(), bench)
    assert bench.timed == []
    assert output.read_text() == text.replace(old, new, 1)


def test_a_file_that_is_no_profile_is_not_overwritten(tmp_path: Path) -> None:
    """A config.json named by mistake stays as it is."""
    output = tmp_path / "config.json"
    output.write_text('{"model_type": "llama"}')
    with pytest.raises(InputError, match="not a profile"):
        tune(request(output), Silent(), FakeBench())
    assert output.read_text() == '{"model_type": "llama"}'


def test_one_size_of_cache_block_serves_all_points(tmp_path: Path) -> None:
    """A size that is best over all points is taken at each, also where another is faster."""
    blocks: list[Knobs] = [{}, {"block_size": 64}, {"block_size": 64, "tile": 64}, {"tile": 64}]

    def cost(work: Work, one: Candidate) -> float:
        large, tile = one.page == 64, one.knobs.get("tile") == 64
        if work.phase == "prefill":
            return 100.0 if large else 200.0
        return {(True, True): 95.0, (False, True): 90.0}.get((large, tile), 100.0)

    output = tmp_path / "p.json"
    bench = FakeBench(cost, settings=blocks)
    tune(request(output, backends=("TRITON_ATTN",)), Silent(), bench)
    (entry,) = read_profile(output).entries
    knobs = {point.phase: point.timings[0].knobs for point in entry.points}
    assert knobs["decode"] == {"block_size": 64, "tile": 64}
    assert knobs["prefill"]["block_size"] == 64


class Graphic(FakeBench):
    """A bench whose device has shared memory, as GPUs have."""

    def site(self) -> Site:
        return msgspec.structs.replace(super().site(), shared_memory_bytes=1 << 16)


@pytest.mark.parametrize(("bench", "wanted"), [(FakeBench, None), (Graphic, 64)])
def test_another_block_must_be_worth_more_on_a_processor(
    tmp_path: Path, bench: type[FakeBench], wanted: int | None
) -> None:
    """2.5 per cent at every point: a reason on a GPU, and what noise does on a processor."""

    def cost(work: Work, one: Candidate) -> float:
        return 97.5 if one.page == 64 else 100.0

    output = tmp_path / "p.json"
    blocks: list[Knobs] = [{}, {"block_size": 64}]
    made = bench(cost, settings=blocks)
    tune(request(output, backends=("TRITON_ATTN",)), Silent(), made)
    (entry,) = read_profile(output).entries
    found = {point.timings[0].knobs.get("block_size") for point in entry.points}
    assert found == {wanted}


def test_what_a_budget_left_out_stands_in_the_profile_as_one_line(tmp_path: Path) -> None:
    """How many settings of which backend, and not a line for each."""
    output = tmp_path / "p.json"
    tune(request(output, budget_s=1e-6), Silent(), FakeBench())
    (entry,) = read_profile(output).entries
    assert entry.points
    for point in entry.points:
        (one,) = point.rejected
        assert (one.backend, one.why, one.knobs) == ("TRITON_ATTN", "pruned", {})
        assert "settings could be judged and timed" in one.detail


def test_nothing_that_can_be_timed_is_a_no(tmp_path: Path) -> None:
    """Every candidate is wrong: exit 1, and no profile is written."""
    output = tmp_path / "p.json"

    class Wrong(FakeBench):
        def check(self, work, candidates, until=None, always=0):
            for one in candidates:
                yield one, Verdict(fault="wrong", detail="all wrong")

    report = tune(request(output), Silent(), Wrong())
    assert report.exit_code == Exit.NO
    assert not output.exists()
    assert report.failures[0].endswith("all wrong")


def test_layers_that_keep_a_state_are_timed_once_for_all_contexts() -> None:
    """What a step costs them does not depend on how long the context is."""
    from attnctl.layer import Options
    from attnctl.model import read_model
    from attnctl.registry import load
    from attnctl.tune.tasks import plan_tasks
    from attnctl.tune.workload import decode
    from tests.commands.running import MODELS
    from tests.tune.fake import machine

    spec = read_model(str(MODELS / "qwen3-next-80b-a3b.json"))
    loads = decode((4,), (256, 1024, 4096))
    plan = plan_tasks(spec, machine(), load(), Options(), loads, ops=("gdn",))
    assert len({task.key for task in plan.tasks}) == 3
    assert len({task.alike for task in plan.tasks}) == 1


def test_settings_is_a_value() -> None:
    """A setting reads as its knobs."""
    assert str(Setting(knobs={"tile": 64, "fast": True}, kernel="fa3")) == "fa3 tile=64 fast=true"
    assert str(Setting()) == "the defaults"
    assert tasks()[0].shape.op == "paged"
