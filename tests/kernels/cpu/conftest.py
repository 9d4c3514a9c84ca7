"""What builds are tried on: a small source, and compilers that are shell scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A C++ file that the system's compiler takes."""
    path = tmp_path / "tiny.cpp"
    path.write_text('extern "C" int answer(void) { return 42; }\n')
    return path


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str, str], Path]:
    """Makes an executable shell script."""

    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return make
