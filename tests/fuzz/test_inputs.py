"""Damaged files: every answer is a document, or one sentence; never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands.running import LLAMA, MODELS, ROOT, Answer, run
from tests.fuzz.mutation import damaged


def documents(folder: Path) -> list[Any]:
    found = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    assert found, f"no documents in {folder}"
    return found


MODEL_FILES = documents(MODELS)
MACHINES = documents(ROOT / "profiles" / "machines")
TAPES = documents(ROOT / "tests" / "machines")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def judge(found: Answer) -> None:
    """Exit 0 or 1 with a document and silence, or 2 with one sentence and nothing else."""
    assert found.code in (0, 1, 2)
    if found.code == 2:
        assert found.out == ""
        assert found.err.startswith("attnctl: ")
        assert found.err.count("\n") == 1
        assert "this is a bug" not in found.err
    else:
        assert json.loads(found.out)
        assert found.err == ""


@given(data=damaged(MODEL_FILES))
def test_a_damaged_config_is_answered_or_refused(folder: Path, data: bytes) -> None:
    """`select --model` with a mutated config.json."""
    path = folder / "config.json"
    path.write_bytes(data)
    judge(run("select", "--model", str(path), "--machine", "h200", "--json"))


@given(data=damaged(MODEL_FILES), width=st.sampled_from([None, 60, 200]))
def test_a_damaged_config_can_be_shown(folder: Path, data: bytes, width: int | None) -> None:
    """What the reader lets through can be drawn, wherever it is shown."""
    path = folder / "shown.json"
    path.write_bytes(data)
    words = ("select", "--model", str(path), "--machine", "zen4", "--explain", "CPU_ATTN")
    found = run(*words, width=width)
    assert found.code in (0, 1, 2)
    assert "this is a bug" not in found.err
    assert "\x1b" not in found.out


@given(data=damaged(MACHINES))
def test_a_damaged_machine_is_answered_or_refused(folder: Path, data: bytes) -> None:
    """`select --machine` and `probe --machine` with a mutated machine file."""
    path = folder / "machine.json"
    path.write_bytes(data)
    judge(run("select", "--model", LLAMA, "--machine", str(path), "--json"))
    judge(run("probe", "--machine", str(path), "--json"))
    assert "this is a bug" not in run("probe", "--machine", str(path), "--sources").err


@given(data=damaged(TAPES), sources=st.booleans())
def test_a_damaged_tape_is_probed_or_refused(folder: Path, data: bytes, sources: bool) -> None:
    """`probe --replay` with a mutated tape: a machine, or a sentence; and it can be shown."""
    path = folder / "tape.json"
    path.write_bytes(data)
    found = run("probe", "--replay", str(path), "--json")
    assert found.code in (0, 2)
    judge(found)
    shown = run("probe", "--replay", str(path), *(["--sources"] if sources else []), width=80)
    assert shown.code == found.code
    assert "this is a bug" not in shown.err
    assert "\x1b" not in shown.out


OPTIONS = (
    *("--dtype", "--kv-cache-dtype", "--block-size", "--tp", "--max-model-len", "--backend"),
    *("--assume-installed", "--device", "--explain", "--machine", "--profile", "--sweep"),
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(OPTIONS),
            st.one_of(
                st.sampled_from(["", "0", "1", "-1", "full=FLASH_ATTN", "auto"]),
                st.text(max_size=8),
            ),
        ),
        max_size=3,
    )
)
def test_any_value_of_any_option_is_answered_or_refused(pairs: list[tuple[str, str]]) -> None:
    """Options with arbitrary values: an answer, or wrong usage said without a traceback."""
    words = [f"{option}={value}" for option, value in pairs]
    found = run("select", "--model", LLAMA, "--machine", "h200", "--json", *words)
    assert found.code in (0, 1, 2)
    assert "Traceback" not in found.err
    assert "this is a bug" not in found.err
