"""Without a GPU the Triton kernels run interpreted, which must be said before the import."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

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
