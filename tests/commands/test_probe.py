"""`attnctl probe`: what it shows, saves and compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from attnctl.machine import Machine
from attnctl.machines import load
from tests.commands.running import LLAMA, ROOT, Answer, run


def test_a_bundled_machine_is_shown_as_json() -> None:
    """`--machine h200 --json` is the machine file, with schema and vendor sections."""
    found = run("probe", "--machine", "h200", "--json")
    assert found.code == 0
    assert found.json["schema"] == "attnctl.machine/1"
    assert found.json["nvidia"]["gpus"][0]["arch"] == "sm_90"
    assert {"nvidia", "amd", "intel", "cpu", "packages", "facts", "findings"} <= set(found.json)
    assert msgspec.json.decode(found.out, type=Machine) == load("h200")


def test_the_last_line_is_a_verdict() -> None:
    """The text ends with what the machine is to a backend."""
    assert run("probe", "--machine", "h200").last_line == (
        "h200: cuda, 1 x NVIDIA H200 (sm_90); 0 problems"
    )
    assert run("probe", "--machine", "max1550").last_line.startswith("max1550: xpu, 2 x Intel")


def test_a_processor_shows_what_is_usable() -> None:
    """A CPU machine names its design, level and the notable features."""
    out = run("probe", "--machine", "zen4").out
    assert "(zen4, x86-64-v4)" in out
    assert "avx512_bf16" in out


def verdicts(found: Answer) -> list[Any]:
    """What an answer decided, without where its facts came from."""
    return [
        (one["name"], one["ok"], [(f["code"], f["verdict"], f["found"]) for f in one["findings"]])
        for group in found.json["groups"]
        for one in group["candidates"]
    ]


def test_this_machine_is_probed_and_saved(tmp_path: Path) -> None:
    """`--save` writes a machine that probes and selects as this one does."""
    path = tmp_path / "this.json"
    found = run("probe", "--json", "--save", str(path))
    assert found.code == 0
    assert found.json["cpu"]["usable"] >= 1
    saved = run("probe", "--machine", str(path), "--json").json
    assert saved["cpu"] == found.json["cpu"]
    here = run("select", "--model", LLAMA, "--json")
    there = run("select", "--model", LLAMA, "--machine", str(path), "--json")
    assert verdicts(here) == verdicts(there)


def test_saving_replaces_a_file_whole(tmp_path: Path) -> None:
    """An older file is replaced, and nothing else is left in the folder."""
    path = tmp_path / "m.json"
    path.write_text("old")
    assert run("probe", "--machine", "h200", "--save", str(path)).code == 0
    assert json.loads(path.read_text())["name"] == "h200"
    assert [one.name for one in tmp_path.iterdir()] == ["m.json"]


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    """`--save` into a missing folder exits 2 and names the file."""
    path = tmp_path / "missing" / "m.json"
    found = run("probe", "--machine", "h200", "--save", str(path))
    assert found.code == 2
    assert str(path) in found.err
    assert found.err.count("\n") == 1


def test_saving_over_a_folder_loses_nothing(tmp_path: Path) -> None:
    """`--save` onto a folder exits 2, and what was in the folder is still there."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "kept").write_text("kept")
    assert run("probe", "--machine", "h200", "--save", str(tmp_path / "d")).code == 2
    assert (tmp_path / "d" / "kept").read_text() == "kept"
    assert [one.name for one in tmp_path.iterdir()] == ["d"]


def test_no_difference_exits_0() -> None:
    """A machine compared with itself differs in nothing."""
    found = run("probe", "--machine", "h200", "--diff", "h200")
    assert found.code == 0
    assert "nothing" in found.last_line


def test_a_difference_exits_1_and_names_both_values() -> None:
    """H100 against H200: memory and bandwidth differ, the architecture does not."""
    found = run("probe", "--machine", "h200", "--diff", "h100")
    assert found.code == 1
    assert "nvidia.gpus.0.bandwidth_gbps" in found.out
    assert "3350" in found.out
    assert "4800" in found.out
    assert "arch" not in found.out


def test_a_difference_as_json_holds_its_exit_code() -> None:
    """`--diff --json` lists path, old and new."""
    found = run("probe", "--machine", "h200", "--diff", "h100", "--json")
    paths = {one["path"]: (one["old"], one["new"]) for one in found.json["differences"]}
    assert found.json["exit_code"] == found.code == 1
    assert paths["nvidia.gpus.0.bandwidth_gbps"] == (3350.0, 4800.0)


@pytest.mark.parametrize("option", ["--record", "--replay"])
def test_a_bundled_machine_cannot_be_taped(option: str, tmp_path: Path) -> None:
    """`--machine` asks nothing, so a tape beside it is wrong usage."""
    found = run("probe", "--machine", "h200", option, str(tmp_path / "tape.json"))
    assert found.code == 2
    assert "--machine" in found.err


def test_a_tape_replays_to_the_machine_that_was_recorded(tmp_path: Path) -> None:
    """`--record` then `--replay`: the same facts, and no question without an answer."""
    tape = tmp_path / "tape.json"
    recorded = run("probe", "--record", str(tape), "--json")
    replayed = run("probe", "--replay", str(tape), "--json")
    assert (recorded.code, replayed.code) == (0, 0)
    for part in ("nvidia", "amd", "intel", "cpu"):
        assert replayed.json[part] == recorded.json[part]
    versions = [
        {name: one.get("version") for name, one in found.json["packages"].items()}
        for found in (recorded, replayed)
    ]
    assert versions[0] == versions[1]
    assert "unrecorded" not in replayed.out


def test_a_damaged_tape_is_one_sentence(tmp_path: Path) -> None:
    """A tape that is no tape exits 2 and says how to make one."""
    tape = tmp_path / "tape.json"
    tape.write_text("{}")
    found = run("probe", "--replay", str(tape))
    assert found.code == 2
    assert "--record" in found.err
    assert found.err.count("\n") == 1


def test_a_machine_without_a_driver_says_what_to_do() -> None:
    """A tape of GPUs without a driver: the findings with their fixes, and missing facts counted."""
    tape = ROOT / "tests" / "machines" / "nvidia-no-driver.tape.json"
    found = run("probe", "--replay", str(tape))
    assert found.code == 0
    assert "nvidia.no_driver" in found.out
    assert "install the NVIDIA driver" in found.out
    assert "facts could not be had" in found.out
    assert "nvidia.gpus.0.shared_memory_bytes" not in found.out
    assert "nvidia.gpus.0.shared_memory_bytes" in run("probe", "--replay", str(tape), "-v").out
    assert found.last_line.endswith("2 problems")


def test_eight_cards_are_counted() -> None:
    """The verdict of a tape names the tape, the platform and the cards."""
    tape = ROOT / "tests" / "machines" / "h100x8.tape.json"
    assert run("probe", "--replay", str(tape)).last_line == (
        "this tape: cuda, 8 x NVIDIA H100 80GB HBM3 (sm_90); 0 problems"
    )


def test_sources_are_shown_on_demand() -> None:
    """`--sources` adds a row per fact; without it only facts that are missing are shown."""
    short, long = run("probe").out, run("probe", "--sources").out
    assert "cpu.threads" in long
    assert "cpu.threads" not in short


def test_this_machine_agrees_with_its_own_save(tmp_path: Path) -> None:
    """A second probe of the same machine differs in nothing that a selection reads."""
    path = tmp_path / "before.json"
    assert run("probe", "--save", str(path)).code == 0
    found = run("probe", "--diff", str(path))
    assert (found.code, "differs" in found.out) == (0, True)
    assert "nothing that a selection depends on" in found.out
