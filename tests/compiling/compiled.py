"""One compilation for the tests that look at it: a few minutes, so it is made once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from attnctl.trials import SmokeReport

ROOT = Path(__file__).parent.parent.parent


def compiled(cache: Path, *words: str) -> tuple[int, SmokeReport]:
    """The exit code and the report of `attnctl smoke --json WORDS`, nothing taken from a cache."""
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "attnctl", "smoke", "--json", *words],
        cwd=ROOT,
        env={**clean, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return done.returncode, msgspec.json.decode(done.stdout, type=SmokeReport)
