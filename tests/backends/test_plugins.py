"""Installed plug-ins: a good one is a peer, a bad one is reported and stops nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

GOOD = """
from attnctl.registry import Backend, Rank
from attnctl.requirements import operation
FIELDS = dict(name="PLUG_ATTN", summary="a plug-in", ops=("paged",), rules=(operation("paged"),),
              ranks=(Rank(platform="cpu", place=1, why="it is first"),), kernel="bundled")
"""


def attnctl(tmp_path: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """One command with a distribution on its path whose only backend is this module."""
    info = tmp_path / "plug-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[attnctl.backends]\nplug = plug_module:BACKEND\n")
    (tmp_path / "plug_module.py").write_text(module)
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    return subprocess.run(
        [sys.executable, "-m", "attnctl", *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_good_plug_in_is_listed_and_picked_like_any_other(tmp_path: Path) -> None:
    """It enters by the same door: its rank puts it first on a CPU."""
    module = GOOD + "BACKEND = Backend(**FIELDS)\n"
    listed = attnctl(tmp_path, module, "list", "PLUG_ATTN")
    assert (listed.returncode, "PLUG_ATTN" in listed.stdout) == (0, True)
    words = ("select", "--model", str(ROOT / "examples" / "llama-3.1-8b.json"))
    picked = attnctl(tmp_path, module, *words, "--machine", "zen4", "--json")
    assert json.loads(picked.stdout)["groups"][0]["pick"] == "PLUG_ATTN"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise ImportError('no such library')\n", "no such library"),
        ("import sys\nsys.exit()\n", "SystemExit"),
        ("BACKEND = 7\n", "expected a Backend"),
        ("BACKEND = Backend(**{**FIELDS, 'name': 'TRITON_ATTN'})\n", "is taken"),
        ("BACKEND = Backend(**{**FIELDS, 'name': 'bad name=x'})\n", "name is"),
        ("BACKEND = Backend(**{**FIELDS, 'name': 5})\n", "name is"),
        ("BACKEND = Backend(**{**FIELDS, 'ops': 'paged'})\n", "ops is"),
        ("BACKEND = Backend(**{**FIELDS, 'ops': ('zzz',)})\n", "ops is"),
        ("BACKEND = Backend(**{**FIELDS, 'rules': (lambda s: 1 / 0,)})\n", "rules is"),
        ("BACKEND = Backend(**{**FIELDS, 'ranks': None})\n", "ranks is"),
        ("BACKEND = Backend(**{**FIELDS, 'ranks': (Rank(platform='cpu', place='x'),)})\n", "place"),
        ("BACKEND = Backend(**{**FIELDS, 'ranks': (Rank(platform='moon', place=1),)})\n", "moon"),
        ("BACKEND = Backend(**{**FIELDS, 'kernel': 'zzz'})\n", "kernel is"),
        ("BACKEND = Backend(**{**FIELDS, 'summary': None})\n", "summary is"),
    ],
)
def test_a_bad_plug_in_is_reported_and_the_rest_works(tmp_path: Path, body: str, says: str) -> None:
    """`list` names it with what is wrong; its neighbours are listed, and the exit code is good."""
    found = attnctl(tmp_path, GOOD + body, "list", "--json")
    document = json.loads(found.stdout)
    assert found.returncode == 0
    assert says in json.dumps(document["broken"])
    assert "TRITON_ATTN" in found.stdout


def test_a_plug_in_that_prints_does_not_garble_the_document(tmp_path: Path) -> None:
    """Its words go to standard error; standard output is JSON alone."""
    module = GOOD + "print('noise on stdout')\nBACKEND = Backend(**FIELDS)\n"
    found = attnctl(tmp_path, module, "list", "--json")
    assert json.loads(found.stdout)["rows"]
    assert "noise on stdout" in found.stderr
