"""Asks an assembler of CUDA for its version."""

from __future__ import annotations

import re
import subprocess

from attnctl.probe.host import HostError

_RELEASE = re.compile(r"release (\d+\.\d+)")


def answer(path: str) -> str:
    """The release of CUDA that a ptxas belongs to: "12.8"."""
    # the parent ends this whole process group at its own limit
    run = subprocess.run([path, "--version"], capture_output=True, check=False, timeout=10)
    match = _RELEASE.search(run.stdout.decode("utf-8", "replace"))
    if match is None:
        raise HostError("garbled", f"{path} --version names no release (status {run.returncode})")
    return match[1]
