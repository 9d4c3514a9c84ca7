"""attnctl beside every combination of torch, Triton, NVML's package and AMD's: 16 environments."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.conftest import ROOT
from tests.packaging.environments import MODULES, OPTIONAL, make, without_paths

SUBSETS = [one for count in range(5) for one in combinations(OPTIONAL, count)]
CONFIG = str(ROOT / "examples" / "llama-3.1-8b.json")
CASE = "paged(queries=1+1,contexts=20+33)"

# what can be imported, and what the library says, in one interpreter
LIBRARY = """
import importlib.util as util, json, sys
import attnctl, attnctl.machines
names = ("torch", "triton", "pynvml", "amdsmi")
machine = attnctl.probe()
registry, h200 = attnctl.load_registry(), attnctl.machines.load("h200")
groups = attnctl.select_model(attnctl.read_model(sys.argv[1]), h200, registry)
loaded = [name for name in names if name in sys.modules]
print(json.dumps({
    "found": [name for name in names if util.find_spec(name)],
    "loaded": loaded,
    "broken": [str(fault) for fault in registry.broken],
    "groups": len(groups),
}))
"""


def ids(present: tuple[str, ...]) -> str:
    return "+".join(present) or "none"


def attnctl(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(python, "-m", "attnctl", *words)


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *words],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=python.parent,
        env=without_paths(dict(os.environ)),
        check=False,
    )


def document(python: Path, *words: str) -> Any:
    """The JSON that a command prints, which ends with a yes or a no and says nothing else."""
    found = attnctl(python, *words, "--json")
    assert found.returncode in (0, 1), found.stderr
    assert "Traceback" not in found.stderr
    return json.loads(found.stdout)


@pytest.mark.parametrize("present", SUBSETS, ids=ids)
def test_the_commands_and_the_library_work_with_what_there_is(
    present: tuple[str, ...], tmp_path: Path
) -> None:
    """What is there can be imported, and nothing else; commands and library answer."""
    python = make(tmp_path / "venv", present)
    found = run(python, "-c", LIBRARY, CONFIG)
    assert found.returncode == 0, found.stderr[-2000:]
    said = json.loads(found.stdout)
    assert said["found"] == [MODULES[name] for name in OPTIONAL if name in present]
    assert (said["loaded"], said["broken"], said["groups"]) == ([], [], 1)
    packages = document(python, "probe")["packages"]
    there = {name for name in ("torch", "triton") if packages.get(name, {}).get("status") == "ok"}
    assert there == {"torch", "triton"} & set(present)
    assert document(python, "select", "--model", CONFIG)["schema"] == "attnctl.select/1"
    rows = {one["name"]: one["installed"] for one in document(python, "list")["rows"]}
    assert (rows["TRITON_ATTN"] == "yes") is ({"torch", "triton"} <= set(present))
    assert (rows["CPU_ATTN"] == "yes") is ("torch" in present)


@pytest.mark.parametrize(
    "present", [(), ("torch",), ("triton",), ("torch", "triton"), OPTIONAL], ids=ids
)
def test_smoke_runs_what_can_run_and_says_what_it_lacks(
    present: tuple[str, ...], tmp_path: Path
) -> None:
    """CPU_ATTN needs torch, the interpreter Triton too; where one is missing it is named."""
    python = make(tmp_path / "venv", present)
    words = ("smoke", "--backend", "CPU_ATTN", "--backend", "TRITON_ATTN", "--case", CASE)
    found = document(python, *words)
    statuses = {
        one["backend"]: [trial["status"] for trial in one["trials"]] for one in found["backends"]
    }
    runs = {"CPU_ATTN": "torch" in present, "TRITON_ATTN": {"torch", "triton"} <= set(present)}
    assert statuses == {name: ["pass" if can else "unsupported"] for name, can in runs.items()}
    assert found["exit_code"] == (0 if any(runs.values()) else 1)
    lacks = {"torch", "triton"} - set(present)
    for one in found["backends"]:
        wanted = {reason["wanted"] for trial in one["trials"] for reason in trial["reasons"]}
        assert wanted <= lacks


def test_picking_for_another_machine_does_not_hang_on_what_is_installed_here(
    tmp_path: Path,
) -> None:
    """A known machine brings its own packages: the answer is the same in every environment."""
    words = ("select", "--model", CONFIG, "--machine", "h200")
    answers = [
        document(make(tmp_path / ids(present), present), *words) for present in ((), OPTIONAL)
    ]
    assert answers[0] == answers[1]
