"""Installs a distribution into a folder, and runs programs that find it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def install(source: Path, folder: Path) -> Path:
    """The folder that holds the distribution, as pip puts it there, made from a copy."""
    copy = folder / "source"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    target = folder / "installed"
    words = ["pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    found = subprocess.run(
        [sys.executable, "-m", *words, "--target", str(target), str(copy)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return target


def run(
    installed: Path, *words: str, folder: Path = ROOT, code: int | None = 0
) -> subprocess.CompletedProcess[str]:
    """`python -m WORDS` with this checkout and that folder on its path; code: how it must end."""
    path = os.pathsep.join((str(installed), str(ROOT)))
    found = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert code is None or found.returncode == code, found.stdout[-3000:] + found.stderr[-2000:]
    return found
