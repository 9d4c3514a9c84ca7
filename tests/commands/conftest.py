"""What tests of several commands start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.profile.factory import profile, write


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own profiles that is empty."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "attnctl" / "profiles"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """A profile of an H100, of two models' layer shapes."""
    return write(tmp_path / "p.json", profile("llama-3.1-8b", "gpt-oss-20b", name="mine"))
