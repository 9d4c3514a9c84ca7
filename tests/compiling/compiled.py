"""One compilation for the tests that look at it: a few minutes, so it is made once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from attnctl.compiling.report import Launched
from attnctl.smoke.trials import SmokeReport

ROOT = Path(__file__).parent.parent.parent


def compiled(cache: Path, *words: str) -> tuple[int, SmokeReport]:
    """The exit code and the report of `attnctl smoke --json WORDS`, nothing taken from a cache."""
    done = _run(cache, "attnctl", "smoke", "--json", *words)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return done.returncode, msgspec.json.decode(done.stdout, type=SmokeReport)


def compiled_around(cache: Path, targets: str) -> tuple[Launched, ...]:
    """What stands around libraries' kernels (tests.compiling.around), for each of the targets."""
    done = _run(cache, "tests.compiling.around", targets)
    assert done.returncode == 0, done.stderr[-2000:]
    return tuple(msgspec.json.decode(line, type=Launched) for line in done.stdout.splitlines())


def noted(targets: str) -> list[str]:
    """What tests.compiling.noting says of every declared case, a line each."""
    done = _run(Path(os.devnull), "tests.compiling.noting", targets)  # nothing is compiled
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def _run(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**clean, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
