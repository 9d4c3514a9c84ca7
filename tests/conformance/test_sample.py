"""A distribution with one good backend and two bad ones, installed as any other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.running import LLAMA
from tests.conformance.installing import ROOT, install, run

SAMPLE = ROOT / "tests" / "plugins" / "sample"
ONE_LINE = "from attnctl.testing import *\n"
BAD = ["triton_attn", "unimportable_attn"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(SAMPLE, tmp_path_factory.mktemp("sample"))


def suite(installed: Path, folder: Path, more: str, *words: str, code: int) -> str:
    """What pytest says of a test module with the one line and some more."""
    (folder / "test_conformance.py").write_text(ONE_LINE + more)
    options = ("-q", "-p", "no:cacheprovider", "--tb=line", *words)
    return run(installed, "pytest", *options, folder=folder, code=code).stdout


def test_list_names_the_good_one_and_what_is_wrong_with_the_others(installed: Path) -> None:
    """The good one with its distribution, the bad ones with their errors; all else is there."""
    table = json.loads(run(installed, "attnctl", "list", "--json").stdout)
    origins = {row["name"]: row["origin"] for row in table["rows"]}
    assert origins["SAMPLE_ATTN"] == "attnctl-sample"
    assert origins["TRITON_ATTN"] == "built-in"
    assert [(one["name"], one["origin"]) for one in table["broken"]] == [
        (name, "attnctl-sample") for name in BAD
    ]
    taken, missing = (one["error"] for one in table["broken"])
    assert taken == "ValueError: the name TRITON_ATTN is taken"
    assert missing == "ModuleNotFoundError: No module named 'library_that_nobody_has'"


def test_select_considers_it_like_any_other(installed: Path) -> None:
    """It stands in the CPU's order, serves on demand, and says why not elsewhere."""
    words = ("attnctl", "select", "--model", LLAMA, "--json")
    on_zen4 = json.loads(run(installed, *words, "--machine", "zen4").stdout)
    (group,) = on_zen4["groups"]
    beaten = [one["name"] for one in group["winner"]["beat"]]
    assert (group["pick"], "SAMPLE_ATTN" in beaten) == ("CPU_ATTN", True)
    demanded = run(installed, *words, "--machine", "zen4", "--backend", "SAMPLE_ATTN")
    assert json.loads(demanded.stdout)["groups"][0]["pick"] == "SAMPLE_ATTN"
    refused = run(installed, *words, "--machine", "h200", "--backend", "SAMPLE_ATTN", code=1)
    (candidate,) = (
        one
        for one in json.loads(refused.stdout)["groups"][0]["candidates"]
        if one["name"] == "SAMPLE_ATTN"
    )
    assert [reason["code"] for reason in candidate["reasons"]] == ["platform"]


def test_smoke_runs_it(installed: Path) -> None:
    """Its cases pass in a child that finds it as the command does."""
    words = ("attnctl", "smoke", "--backend", "SAMPLE_ATTN", "--quick", "--json")
    (trials,) = json.loads(run(installed, *words).stdout)["backends"]
    statuses = [trial["status"] for trial in trials["trials"]]
    assert (trials["level"], trials["device"]) == ("device", "cpu")
    assert statuses.count("pass") >= 30
    assert set(statuses) == {"pass", "unsupported"}


def test_explain_tells_what_it_takes(installed: Path) -> None:
    """Its rules in words, and whose it is."""
    told = run(installed, "attnctl", "explain", "SAMPLE_ATTN").stdout
    assert "features      sliding_window, softcap" in told
    assert "kernel        bundled, by attnctl-sample" in told


def test_the_conformance_suite_passes_for_the_good_one(installed: Path, tmp_path: Path) -> None:
    """One line, and the name because the neighbours are bad."""
    said = suite(installed, tmp_path, 'BACKENDS = ("SAMPLE_ATTN",)\nQUICK = True\n', code=0)
    assert "11 passed" in said


def test_the_conformance_suite_names_plug_ins_that_do_not_load(
    installed: Path, tmp_path: Path
) -> None:
    """By entry point, with the error; the good one is tested all the same."""
    said = suite(installed, tmp_path, "", "-k", "test_it_loads", code=1)
    assert "2 failed, 1 passed" in said
    assert "triton_attn of attnctl-sample: ValueError: the name TRITON_ATTN is taken" in said
    assert "No module named 'library_that_nobody_has'" in said


def test_the_conformance_suite_is_red_where_no_plug_in_is_installed(tmp_path: Path) -> None:
    """A suite that tests nothing must not look like one that passed."""
    said = suite(tmp_path, tmp_path, "", "-k", "test_it_loads", code=1)
    assert 'no installed distribution has an entry point of the group "attnctl.backends"' in said
    said = suite(tmp_path, tmp_path, 'BACKENDS = ("NOT_ATTN",)\n', "-k", "test_it_loads", code=1)
    assert "NOT_ATTN did not load: it is not in the registry" in said


def test_the_suite_imports_neither_pytest_nor_torch() -> None:
    """pytest is the author's; torch is loaded by what runs kernels."""
    script = (
        "import sys; from attnctl.testing import *; "
        "print([name for name in ('pytest', 'torch', 'numpy') if name in sys.modules])"
    )
    words = [sys.executable, "-c", script]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
