"""Without a GPU the Triton kernels run interpreted, which must be said before the import."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("triton was imported before these tests could set TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small products on few cores cost more in threads than in numbers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
