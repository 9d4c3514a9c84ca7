"""Damaged profiles: every command answers, or refuses in one sentence; none is half used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from attnctl.exits import InputError
from attnctl.profile.canonical import encode
from attnctl.profile.document import parse, read_profile
from tests.commands.running import LLAMA, run
from tests.fuzz.mutation import damaged
from tests.profile.factory import GRID, profile

ON = ("--machine", "h100")
GRID = (*GRID[:3], *GRID[9:11])
WHOLE = json.loads(encode(profile("llama-3.1-8b", "gpt-oss-20b", grid=GRID)))
HEAD = {**WHOLE, "entries": WHOLE["entries"][:1]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@settings(max_examples=150)
@given(data=damaged([WHOLE, HEAD]))
def test_a_damaged_profile_is_answered_or_refused(folder: Path, data: bytes) -> None:
    """Each command that reads one, without a traceback and without an escape on a screen."""
    path = folder / "profile.json"
    path.write_bytes(data)
    commands = (
        ("profile", "validate", str(path), *ON),
        ("profile", "show", str(path)),
        ("profile", "verify", str(path), *ON),
        ("profile", "diff", str(path), str(path)),
        ("profile", "merge", str(path), str(path)),
        ("profile", "report", str(path), "-o", "-"),
        ("select", "--model", LLAMA, *ON, "--profile", str(path), "--map"),
    )
    refused = set()
    for words in commands:
        found = run(*words)
        assert found.code in (0, 1, 2), words
        assert "this is a bug" not in found.err, (words, found.err)
        assert "\x1b" not in found.out
        if found.code == 2:
            refused.add(words)
            assert found.out == ""
    assert len(refused) in (0, len(commands))


@given(data=damaged([WHOLE]))
def test_what_reads_is_written_in_a_form_that_reads_alike(folder: Path, data: bytes) -> None:
    """The canonical form of whatever was read is a fixed point."""
    path = folder / "fixed.json"
    path.write_bytes(data)
    try:
        read = read_profile(path)
    except InputError:
        return
    once = encode(read)
    assert encode(parse(once, "again")) == once
