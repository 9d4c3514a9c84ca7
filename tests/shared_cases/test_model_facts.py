"""The shared readings of real public configs, each fact compared with what the reader gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from attnctl.model import read_model

FACTS = Path(__file__).parents[3] / "shared" / "cases" / "model_facts.jsonl"
STRICT = (
    "head_size",
    "head_size_v",
    "num_heads",
    "num_kv_heads",
    "window",
    "sinks",
    "softcap",
    "alibi",
)
# what the shared file words for people: the reader gives the plain value
WORDED = {"float32 when auto (vLLM)": "float32"}


def lines() -> list[dict[str, Any]]:
    if not FACTS.is_file():
        pytest.fail(f"{FACTS} is missing: these tests need the shared cases beside the checkout")
    return [json.loads(line) for line in FACTS.read_text().splitlines() if line.strip()]


def read(line: dict[str, Any]) -> dict[str, Any]:
    return json.loads(msgspec.json.encode(read_model(line["config"])))


def kinds(groups: list[dict[str, Any]]) -> list[str]:
    return [group["kind"] for group in groups]


def differences(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What differs between a wanted group and a found one, in words."""
    told = []
    if wanted["layers"] != found["layers"]:
        told.append(f"layers {found['layers']} instead of {wanted['layers']}")
    for name in STRICT:
        if wanted.get(name) != found[name]:
            told.append(f"{name} {found[name]} instead of {wanted.get(name)}")
    if wanted.get("stack") != found["stack"]:
        told.append(f"stack {found['stack']} instead of {wanted.get('stack')}")
    for name in ("state", "mla"):
        expected = plain(wanted.get(name))
        if expected != found[name]:
            told.append(f"{name} {found[name]} instead of {expected}")
    told += [f"indexer: {text}" for text in _indexer(wanted.get("indexer"), found["indexer"])]
    told += [f"notes: {text}" for text in _extras(wanted, found)]
    return told


def plain(values: dict[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {k: WORDED.get(v, v) if isinstance(v, str) else v for k, v in values.items()}


def _indexer(wanted: dict[str, Any] | None, found: dict[str, Any] | None) -> list[str]:
    if wanted is None or found is None:
        return [] if wanted == found else [f"{found} instead of {wanted}"]
    return [
        f"{name} {found[name]} instead of {wanted[name]}"
        for name in ("heads", "head_dim", "topk")
        if found[name] != wanted[name]
    ]


def _extras(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    known = {*STRICT, "kind", "layers", "stack", "state", "mla", "indexer"}
    return [
        f"{name} {found['notes'].get(name)} instead of {value}"
        for name, value in wanted.items()
        if name not in known and found["notes"].get(name) != value
    ]


def test_every_line_of_the_shared_file_is_read() -> None:
    """At least the 36 known lines are there and none is refused."""
    assert len(lines()) >= 36
    for line in lines():
        assert read(line)["groups"], line["id"]


def test_kinds_of_groups_are_as_the_shared_file_has_them() -> None:
    """The kinds, in order; a line may accept other readings, of which ours must be one."""
    for line in lines():
        found = kinds(read(line)["groups"])
        wanted = kinds(line["expected"]["groups"])
        accepted = line.get("accept_kinds", [])
        assert found == wanted or found in accepted, (line["id"], found, wanted)


def test_layers_heads_widths_windows_states_and_notes_agree() -> None:
    """Every fact of every group whose kinds are those of the file."""
    wrong = {}
    for line in lines():
        found, wanted = read(line)["groups"], line["expected"]["groups"]
        told = [text for w, f in zip(wanted, found, strict=True) for text in differences(w, f)]
        if told:
            wrong[line["id"]] = told
    assert not wrong


@pytest.mark.parametrize("name", ["dtype", "kv_cache_dtype_from_checkpoint"])
def test_number_formats_agree(name: str) -> None:
    """The dtype of the checkpoint and of its KV cache, null where the file is silent."""
    found = {line["id"]: read(line)[name] for line in lines()}
    assert found == {line["id"]: line["expected"][name] for line in lines()}


def test_vision_towers_agree() -> None:
    """Layers, heads, head width and kind of the tower, or its name; none where none is expected."""
    for line in lines():
        wanted, found = line["expected"]["vision"], read(line)["vision"]
        if wanted is None:
            assert found is None, line["id"]
        else:
            assert {name: found[name] for name in wanted} == wanted, line["id"]
