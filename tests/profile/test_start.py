"""What reading profiles loads and needs: little, and no home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from tests.commands.running import LLAMA, ROOT
from tests.profile.factory import profile, write

HEAVY = ("torch", "triton", "numpy", "pydantic", "typer", "rich", "matplotlib")
READ = """
import sys
for name in {heavy!r}:
    sys.modules[name] = None
import attnctl.profile
assert "msgspec" not in sys.modules
found = attnctl.profile.read_profile({path!r})
entry = found.entries[0]
table = attnctl.profile.Picker(found).table(entry.shape, entry.order)
print(table.pick("decode", 8, 8192).backend)
"""


def test_a_profile_is_read_without_any_heavy_package(tmp_path: Path) -> None:
    """Importing the package loads nothing; reading and asking load msgspec."""
    path = write(tmp_path / "p.json", profile())
    code = READ.format(heavy=HEAVY, path=str(path))
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout.strip() == "FLASH_ATTN", ran.stderr


def test_select_needs_no_home(tmp_path: Path) -> None:
    """Nothing of the user's is found, and the named profile serves all the same."""
    path = write(tmp_path / "p.json", profile(name="named", faster={"TRITON_ATTN": 0.1}))
    environ = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_DATA_HOME")}
    environ |= {"ATTNCTL_PROFILE": str(path), "PYTHONPATH": str(ROOT)}
    words = ("select", "--model", LLAMA, "--machine", "h100", "--json")
    ran = subprocess.run(
        [sys.executable, "-m", "attnctl", *words], env=environ, capture_output=True, text=True
    )
    report = json.loads(ran.stdout)
    assert (report["profile"]["name"], report["profile"]["origin"]) == ("named", "environment")
    assert report["groups"][0]["pick"] == "TRITON_ATTN"


@pytest.mark.parametrize(
    "module",
    [
        "attnctl.findings",
        "attnctl.machine",
        "attnctl.machines",
        "attnctl.model.class_defaults",
        "attnctl.profile.document",
        "attnctl.profile.keys",
        "attnctl.profile.shipped",
        "attnctl.profile.sources",
        "attnctl.profile.values",
    ],
)
def test_types_that_every_run_decodes_state_their_fields_as_types(module: str) -> None:
    """Fields as text (`from __future__ import annotations`) are compiled again in each process."""
    members = vars(import_module(module)).values()
    types = [one for one in members if isinstance(one, type) and one.__module__ == module]
    structs = [one for one in types if issubclass(one, msgspec.Struct)]
    assert structs
    for one in structs:
        assert not any(isinstance(field, str) for field in one.__annotations__.values()), one
