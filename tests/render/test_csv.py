"""Tables for spreadsheets: what `select --csv` and `list --csv` write."""

from __future__ import annotations

import csv
import io

import pytest

from attnctl.registry import load
from tests.commands.running import LLAMA, MODELS, run

GEMMA = str(MODELS / "gemma-3-27b.json")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_every_group_of_every_answer_has_a_row() -> None:
    """Its fields are those of the document."""
    words = ("select", "--model", LLAMA, "--model", GEMMA, "--machine", "h200", "--machine", "t4")
    found, document = run(*words, "--csv"), run(*words, "--json").json
    assert found.code == document["exit_code"] == 1
    groups = [
        (report["machine"]["name"], group["pick"] or "", group["kind"])
        for report in document["reports"]
        for group in report["groups"]
    ]
    read = rows(found.out)
    assert [(r["machine"], r["pick"], r["layers"].split()[0]) for r in read] == groups
    assert {r["model"] for r in read} == {LLAMA, GEMMA}
    first = read[0]
    assert first["token_bytes"] == str(2 * 2 * 8 * 128 * 32)
    assert (first["op"], first["dtype"], first["engine_pick"]) == ("paged", "bfloat16", "")


def test_one_answer_is_a_table_too_and_an_engine_has_a_column() -> None:
    """vLLM's pick stands beside ours."""
    words = ("select", "--model", LLAMA, "--machine", "b200", "--engine", "vllm", "--csv")
    (row,) = rows(run(*words).out)
    assert (row["pick"], row["engine_pick"]) == ("FLASHINFER", "FLASHINFER")
    assert row["next"].split()[0] == "FLASH_ATTN"


def test_every_backend_has_a_row() -> None:
    """With what is declared, and what is here."""
    read = rows(run("list", "--machine", "h200", "--csv").out)
    assert sorted(row["backend"] for row in read) == sorted(b.name for b in load().backends)
    by = {row["backend"]: row for row in read}
    assert by["FLASHMLA"]["usable"] == "yes"
    assert by["CPU_ATTN"]["not_usable"].startswith("platform: wants a CPU")
    assert "sliding_window" in by["TRITON_ATTN"]["features"].split()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("select", "--model", LLAMA, "--csv", "--json"), "--csv and --json"),
        (("select", "--model", LLAMA, "--csv", "--what-if"), "--csv has no column for it"),
        (("select", "--model", LLAMA, "--csv", "--vllm-args"), "--csv and --vllm-args"),
        (("list", "--csv", "--markdown"), "--csv and --markdown"),
    ],
)
def test_two_forms_of_one_answer_are_refused(words: tuple[str, ...], sentence: str) -> None:
    """Exit code 2, in a sentence."""
    found = run(*words)
    assert (found.code, found.out) == (2, "")
    assert sentence in found.err
