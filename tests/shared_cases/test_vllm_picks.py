"""vLLM's recorded picks: every shared line is answered as vLLM 0.33 answered it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnctl.engines import vllm

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"


def lines() -> list[dict[str, Any]]:
    path = CASES / "vllm_0_33_picks.jsonl"
    assert path.is_file(), (
        f"{path} is missing: these tests need the shared cases beside the checkout"
    )
    return [json.loads(line) for line in path.read_text().splitlines()]


def answer(line: dict[str, Any]) -> vllm.EnginePick:
    return vllm.pick(line["platform"], line["arch"], line["installed"], line["config"])


def differing(field: str) -> list[int]:
    return [line["id"] for line in lines() if getattr(answer(line), field) != line[field]]


def test_all_recorded_lines_are_there() -> None:
    """The file holds 750 lines; a truncated copy would pass the rest for nothing."""
    assert len(lines()) == 750


@pytest.mark.parametrize("field", ["pick", "error"])
def test_every_line_gets_the_recorded_answer(field: str) -> None:
    """Pick, or the class of the error, is what vLLM gave."""
    assert differing(field) == []


def test_every_line_gets_the_recorded_reasons() -> None:
    """The rejected backends of the automatic list are the same, each with the same set of slugs."""
    wrong = []
    for line in lines():
        wanted = {name: frozenset(slugs) for name, slugs in line["rejected"].items()}
        if answer(line).rejected != wanted:
            wrong.append(line["id"])
    assert wrong == []


def test_every_prefill_choice_is_the_recorded_one() -> None:
    """Lines that ask for a prefill backend get it, and None where vLLM found none."""
    asked = [line for line in lines() if line["config"].get("want_prefill")]
    wrong = [line["id"] for line in asked if answer(line).mla_prefill != line.get("mla_prefill")]
    assert len(asked) > 80
    assert wrong == []
