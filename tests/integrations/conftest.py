"""transformers imports triton, which must first be told that the kernels' tests interpret it."""

from __future__ import annotations

import pytest

import tests.kernels.conftest  # noqa: F401


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor the kernels are the compiled ones, as in a user's program."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
