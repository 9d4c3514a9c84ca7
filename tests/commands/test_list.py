"""`attnctl list` and `attnctl explain`: the registry and its codes, for people and programs."""

from __future__ import annotations

import re

import pytest

from attnctl.codes import TABLE
from attnctl.registry import load
from tests.commands.running import run


def test_every_backend_of_the_registry_is_listed() -> None:
    """The text names each backend once, at the start of a line."""
    lines = run("list").out.splitlines()
    for backend in load().backends:
        assert sum(line.split(" ")[0] == backend.name for line in lines) == 1


def test_the_list_as_json_has_a_row_per_backend() -> None:
    """Rows carry operations, platforms and features; the schema is named."""
    found = run("list", "--json")
    rows = {row["name"]: row for row in found.json["rows"]}
    assert found.code == 0
    assert found.json["schema"] == "attnctl.matrix/1"
    assert set(rows) == {backend.name for backend in load().backends}
    assert rows["FLASHMLA"]["ops"] == ["mla"]
    assert rows["MAMBA2_ATTN"]["is_ssm"] is True


def test_the_list_as_markdown_is_a_table() -> None:
    """`--markdown` gives a table with a row per backend."""
    out = run("list", "--markdown").out
    assert out.startswith("| backend |")
    assert out.count("\n| `") == len(load().backends)


@pytest.mark.parametrize("command", ["list", "explain"])
def test_one_backend_is_shown_in_full(command: str) -> None:
    """`list NAME` and `explain NAME` say what it needs, lacks, and where it stands."""
    found = run(command, "triton-attn")
    assert found.code == 0
    assert "TRITON_ATTN: " in found.out
    assert "cache dtypes" in found.out
    assert "default order on cuda, paged:" in found.out
    assert "\nFLASHMLA" not in found.out


def test_a_code_is_explained() -> None:
    """`explain CODE` gives a title, what the rule is about and what to do."""
    found = run("explain", "compute_capability")
    assert found.code == 0
    assert found.out.startswith("compute_capability: ")
    assert "to do" in found.out


def test_a_code_is_explained_as_json() -> None:
    """`explain CODE --json` holds the same words by name."""
    found = run("explain", "dtype", "--json").json
    assert found["code"] == "dtype"
    assert found["title"]
    assert found["advice"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("list", "TRITON_ATN"), "Did you mean TRITON_ATTN?"),
        (("explain", "compute_capabilty"), "Did you mean compute_capability?"),
        (("explain", "TRITON_ATN"), "Did you mean TRITON_ATTN?"),
        (("explain", "zzzzzz"), "All codes: attnctl explain"),
    ],
)
def test_an_unknown_name_is_met_with_the_nearest(words: tuple[str, ...], hint: str) -> None:
    """A name that is no code and no backend exits 2 with one sentence."""
    found = run(*words)
    assert (found.code, found.out) == (2, "")
    assert hint in found.err
    assert found.err.count("\n") == 1


def test_without_a_subject_every_code_is_listed() -> None:
    """As titles by group, as the page of the docs, and as a document."""
    text = run("explain").out
    page = run("explain", "--markdown").out
    found = run("explain", "--json").json
    assert found["schema"] == "attnctl.codes/1"
    assert [one["code"] for one in found["codes"]] == list(TABLE)
    for code, (title, _, _) in TABLE.items():
        assert re.search(rf"^  {re.escape(code)} +{re.escape(title)}$", text, re.MULTILINE)
        assert f"- **`{code}`**: {title}. " in page
    assert run("explain", "--markdown", "dtype").code == 2


def test_every_code_in_an_answer_can_be_explained() -> None:
    """Each reason that select gives, on any bundled machine, has an explanation."""
    model = "examples/llama-3.1-8b.json"
    reports = run("select", "--model", model, "--machine", "all", "--json").json["reports"]
    codes = {
        reason["code"]
        for report in reports
        for group in report["groups"]
        for candidate in group["candidates"]
        for reason in candidate["reasons"]
    }
    assert len(codes) >= 5
    for code in codes:
        assert run("explain", code).code == 0
