"""The command on this processor: what it builds, and that a program builds nothing after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attnctl.probe import probe
from attnctl.profile.canonical import encode
from attnctl.profile.document import key_of
from attnctl.profile.keys import Versions
from attnctl.profile.values import Entry, Point, Profile, Shape, Timing
from attnctl.tune.workload import Load
from attnctl.warming.plan import Wanted
from attnctl.warming.run import warm
from attnctl.warming.values import Job
from tests.commands.running import ROOT, run

LAYER = Shape(op="paged", heads=4, kv_heads=2, head_size=64, head_size_v=64, dtype="float32")

SERVE = """
import json, sys, torch
import attnctl
from attnctl.profile.document import read_profile
from attnctl.profile.layers import spec_of_shape
from attnctl.tune.workload import Load
from attnctl.warming.batches import run_once
from attnctl.warming.worker import Count
profile = read_profile(sys.argv[1])
count = Count()
planned = attnctl.plan(spec_of_shape(profile.entries[0].shape), profile=profile)
before = count.now()
run_once(planned[0], Load(phase="decode", batch=3, context=70), torch.device("cpu"))
run_once(planned[0], Load(phase="prefill", batch=1, context=33, query=33), torch.device("cpu"))
made = count.since(before, 2)
print(json.dumps([made.compiled, made.built]))
"""


def written(folder: Path, **changes: Any) -> Path:
    here = probe()
    points = tuple(
        Point(
            phase="decode",
            batch=batch,
            context=64,
            timings=(Timing(backend="CPU_ATTN", median_us=9.0, knobs=knobs),),
        )
        for batch, knobs in ((1, {}), (16, {"block_rows": 24}))
    )
    fields: dict[str, Any] = {
        "name": "mine",
        "key": key_of(here, None),
        "versions": Versions(),
        "entries": (Entry(shape=LAYER, points=points),),
        **changes,
    }
    path = folder / "p.json"
    path.write_bytes(encode(Profile(**fields)))
    return path


def command(*words: str, caches: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "XDG_CACHE_HOME": str(caches), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def test_after_warm_a_program_compiles_nothing(tmp_path: Path) -> None:
    """On empty caches the C++ source is built once; warm again builds nothing, nor does a plan."""
    profile, caches = str(written(tmp_path)), tmp_path / "caches"
    caches.mkdir()
    built = []
    for _ in range(2):
        done = command("-m", "attnctl", "warm", "--profile", profile, "--json", caches=caches)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert [job["setting"] for job in report["jobs"]] == ["the defaults", "block_rows=24"]
        assert all(job["made"]["status"] == "ready" for job in report["jobs"])
        built.append(report["built"])
    assert built == [1, 0]
    served = command("-c", SERVE, profile, caches=caches)
    assert json.loads(served.stdout) == [[], []], served.stderr


def test_without_warm_a_program_builds_at_its_first_request(tmp_path: Path) -> None:
    """The count is one that can fail: on empty caches the first request builds."""
    profile, caches = str(written(tmp_path)), tmp_path / "caches"
    caches.mkdir()
    served = command("-c", SERVE, profile, caches=caches)
    compiled, built = json.loads(served.stdout)
    assert (compiled, len(built)) == ([], 1), served.stderr


def test_a_setting_that_fails_costs_itself(tmp_path: Path) -> None:
    """A knob that the backend has not is an error of its job; the others are ready."""
    bad = Point(
        phase="decode",
        batch=1,
        context=64,
        timings=(Timing(backend="CPU_ATTN", median_us=9.0, knobs={"no_such": 1}),),
    )
    good = Point(
        phase="decode",
        batch=64,
        context=64,
        timings=(Timing(backend="CPU_ATTN", median_us=9.0),),
    )
    path = str(written(tmp_path, entries=(Entry(shape=LAYER, points=(bad, good)),)))
    answer = run("warm", "--profile", path, "--json")
    assert answer.code == 1
    status = {job["setting"]: job["made"]["status"] for job in answer.json["jobs"]}
    assert status == {"no_such=1": "error", "the defaults": "ready"}
    assert "no knob 'no_such'" in answer.out
    told = run("warm", "--profile", path)
    assert "1 of 2 settings failed" in told.last_line


def test_a_job_that_hangs_costs_itself(tmp_path: Path) -> None:
    """Its child is ended at the time limit, which the start does not count into."""
    small = Load(phase="decode", batch=1, context=64)
    jobs = tuple(
        Job(shape=LAYER, backend="CPU_ATTN", setting=name, loads=(small,)) for name in "ab"
    )
    profile = str(written(tmp_path))
    report = warm(profile, Wanted(jobs=jobs), probe(), 0, timeout_s=0.0)
    assert [one.made.status for one in report.jobs] == ["ready", "timeout"]
    assert report.exit_code == 1


def test_what_was_timed_on_another_size_of_blocks_runs_on_it(tmp_path: Path) -> None:
    """On blocks of 64 beside the backend's own; a size that nobody takes is that job's error."""
    timings = [
        Timing(backend="CPU_ATTN", median_us=9.0, knobs=knobs)
        for knobs in ({}, {"block_size": 64, "block_rows": 24})
    ]
    point = Point(phase="decode", batch=1, context=64, timings=(timings[0],), others=(timings[1],))
    profile = str(written(tmp_path, entries=(Entry(shape=LAYER, points=(point,)),)))
    answer = run("warm", "--profile", profile, "--json")
    assert answer.code == 0, answer.err
    assert [job["setting"] for job in answer.json["jobs"]] == [
        "the defaults",
        "block_rows=24 block_size=64",
    ]
    small = (Load(phase="decode", batch=1, context=64),)
    jobs = tuple(
        Job(shape=LAYER, backend="CPU_ATTN", setting="", loads=small, block_size=tokens)
        for tokens in (64, 40)
    )
    (good, bad) = warm(profile, Wanted(jobs=jobs), probe(), 0).jobs
    assert (good.made.status, bad.made.status) == ("ready", "error")
    assert "no backend is eligible for layers of kind full" in bad.made.detail


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--profile", "no-such"), "no profile or file of that name"),
        (("--profile", "h200", "--jobs", "0"), "--jobs 0: must be from 1 to 64"),
        (("--profile", "h200", "--timeout", "-1"), "--timeout -1"),
        (("--profile", "h200", "--device", "9"), "--device 9"),
        ((), "--profile"),
    ],
)
def test_wrong_usage_is_one_sentence(words: tuple[str, ...], says: str) -> None:
    """Exit code 2, and no child is started."""
    answer = run("warm", *words)
    assert answer.code == 2
    assert says in answer.err


def test_a_profile_of_another_device_is_a_no() -> None:
    """Exit code 1, one sentence."""
    answer = run("warm", "--profile", "h200")
    assert answer.code == 1
    assert len(answer.err.splitlines()) == 1
    assert "it was timed on nvidia sm_90" in answer.err
