"""Cases that are taken from a model's config.json."""

from __future__ import annotations

import pytest

from attnctl.exits import InputError
from attnctl.layer import Options, layer_of
from attnctl.model import read_model
from attnctl.ops.case import split_case
from attnctl.ops.catalog import OPERATIONS, case_of
from attnctl.ops.model_cases import cases_of, model_cases
from tests.commands.running import MODELS

NO_CASES = {"rwkv5-3b"}


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in MODELS.glob("*.json") if path.stem not in NO_CASES)
)
def test_every_model_gives_cases_that_paste_back(name: str) -> None:
    """Of operations that have a specification, and each once."""
    cases = model_cases(str(MODELS / f"{name}.json"))
    texts = [case.text for case in cases]
    assert len(set(texts)) == len(texts) >= 1
    for case in cases:
        assert case.op in OPERATIONS
        assert case_of(*split_case(case.text)).text == case.text


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in MODELS.glob("*.json") if path.stem not in NO_CASES)
)
def test_no_kind_of_layer_is_without_cases(name: str) -> None:
    """The operations of a model's layers are those of its cases; the indexer comes with its layers.

    LFM2's short convolutions and MiniMax's lightning attention say their widths in other places.
    """
    spec = read_model(MODELS / f"{name}.json")
    layers = {layer_of(spec, group, Options()).op for group in spec.groups if group.layers}
    cases = {case.op for case in cases_of(spec)}
    assert layers - {None} == cases - {"indexer"}


def test_a_model_of_many_kinds_of_layers_has_cases_of_each() -> None:
    """Jamba: attention and Mamba 1; Kimi Linear: latent attention and a gate per channel."""
    jamba = {case.op for case in model_cases(str(MODELS / "jamba-1.5-mini.json"))}
    kimi = model_cases(str(MODELS / "kimi-linear-48b-a3b.json"))
    assert jamba == {"paged", "mamba1"}
    assert {case.op for case in kimi} == {"mla", "gdn"}
    assert all(case["kda"] for case in kimi if case.op == "gdn")


def test_a_window_that_a_case_can_reach_past_has_one_that_does() -> None:
    """gpt-oss's 128 tokens; Mistral's 4096 are more than a case's context, and are off."""
    oss = [case for case in model_cases(str(MODELS / "gpt-oss-20b.json")) if case["window"]]
    assert {case["window"] for case in oss} == {128}
    assert any(str(case["contexts"]) == "137+257" for case in oss)
    mistral = model_cases(str(MODELS / "mistral-7b-v0.1.json"))
    assert {case["window"] for case in mistral} == {0}


def test_a_model_without_such_layers_is_refused() -> None:
    """The sentence names the kind."""
    with pytest.raises(InputError, match="no operation has cases for its layers"):
        model_cases(str(MODELS / "rwkv5-3b.json"))
