"""`attnctl smoke --perf` on a processor: that times are there, and what they are of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.commands.running import ROOT, run

CASES = (
    "paged(queries=1+1,contexts=33+20,page=32)",
    "paged(queries=16,contexts=16,page=32)",
)


def smoke(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "attnctl", "smoke", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The JSON and the JUnit file of one run of two cases."""
    folder = tmp_path_factory.mktemp("perf")
    path, junit = folder / "smoke.json", folder / "smoke.xml"
    words = [x for case in CASES for x in ("--case", case)]
    found = smoke("--backend", "CPU_ATTN", *words, "--perf", "--json", "--junit", str(junit))
    assert found.returncode == 0, found.stderr
    path.write_text(found.stdout)
    return path, junit


def test_each_right_case_has_a_time_with_rates_that_agree(report: tuple[Path, Path]) -> None:
    """Bytes over time is GB/s, floor over time is the share; the ceilings stand beside."""
    document = json.loads(report[0].read_text())
    (ceiling,) = document["ceilings"]
    assert ceiling["device"] == "cpu"
    assert min(ceiling["read_gbps"], ceiling["matrix_gflops"]) > 0
    trials = document["backends"][0]["trials"]
    assert [one["case"] for one in trials] == list(CASES)
    for one in trials:
        timing = one["timing"]
        assert timing["median_us"] > 0
        assert timing["runs"] >= 3
        assert timing["copies"] >= 2
        assert timing["clock"] in ("wall", "process")
        assert timing["gbps"] == pytest.approx(timing["bytes"] / 1e3 / timing["median_us"])
        assert timing["gflops"] == pytest.approx(timing["flops"] / 1e3 / timing["median_us"])
        assert timing["share"] == pytest.approx(timing["floor_us"] / timing["median_us"])
        assert timing["floor_us"] == pytest.approx(
            max(
                timing["bytes"] / 1e3 / ceiling["read_gbps"],
                timing["flops"] / 1e3 / ceiling["matrix_gflops"],
            )
        )


def test_junit_has_the_figures_as_properties(report: tuple[Path, Path]) -> None:
    """By the names of --json."""
    found = ElementTree.parse(report[1]).getroot().findall(".//testcase/properties")
    assert len(found) == len(CASES)
    names = {one.get("name"): one.get("value") for one in found[0]}
    assert {"median_us", "iqr_us", "gbps", "gflops", "floor_us", "share"} <= set(names)
    assert float(names["median_us"] or 0) > 0


def test_what_is_interpreted_is_not_timed_and_says_so() -> None:
    """The case passes; there is no time, and the screen says why."""
    words = ("--backend", "TRITON_ATTN", "--device", "interpret", "--case", CASES[0], "--perf")
    found = smoke(*words)
    assert found.returncode == 0, found.stderr
    assert "TRITON_ATTN: interpreted, which says nothing of speed: not timed" in found.stdout
    assert "nothing was timed" in found.stdout
    assert "GB/s" not in found.stdout


def test_a_state_is_timed_and_compared_with_an_earlier_run(
    report: tuple[Path, Path], tmp_path: Path
) -> None:
    """A recurrence's call is timed too; against a second each it is faster."""
    case = "mamba1(queries=1+1,initial=all)"
    document = json.loads(report[0].read_text())
    (earlier,) = document["backends"]
    trial = earlier["trials"][0]
    trial["case"] = case
    trial["timing"]["median_us"] = 1e6
    document["backends"] = [{**earlier, "backend": "MAMBA1_ATTN", "trials": [trial]}]
    path = tmp_path / "before.json"
    path.write_text(json.dumps(document))
    words = ("--backend", "MAMBA1_ATTN", "--case", case, "--perf", "--baseline", str(path))
    found = smoke(*words)
    assert "0 slower, 1 faster, 0 the same" in found.stdout, found.stderr
    assert f"MAMBA1_ATTN {case}" in found.stdout
    assert found.returncode == 0, found.stdout


def test_serving_sizes_are_listed_behind_the_small_ones() -> None:
    """Of what runs here as itself, and not of what is interpreted."""
    long = "contexts=2048+2048"
    timed = run("smoke", "--backend", "CPU_ATTN", "--perf", "--list").out
    assert long in timed
    assert long not in run("smoke", "--backend", "CPU_ATTN", "--list").out
    assert long not in run("smoke", "--backend", "TRITON_MLA", "--perf", "--list").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--all", "--baseline", "x.json"), "--baseline needs --compile-for or --perf"),
        (("--all", "--perf", "--slower", "5"), "--slower needs --perf and --baseline"),
        (("--compile-for", "sm_90", "--perf"), "--perf does not go with --compile-for"),
        (
            ("--all", "--perf", "--baseline", "x.json", "--slower", "-1"),
            "must be 0 to 1000 percent",
        ),
        (("--all", "--perf", "--baseline", "absent.json"), "absent.json"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(words: tuple[str, ...], says: str) -> None:
    """Exit code 2, and nothing runs."""
    found = run("smoke", *words)
    assert (found.code, found.out) == (2, "")
    assert says in found.err
