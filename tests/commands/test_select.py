"""`attnctl select`: the answer as text, as JSON and as an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.running import LLAMA, MODELS, ROOT, run

GEMMA = str(MODELS / "gemma-3-27b.json")
ON_H200 = ("select", "--model", LLAMA, "--machine", "h200")


def test_the_json_answer_names_pick_and_evidence() -> None:
    """One group of 32 layers, a pick with its evidence, and every candidate of the registry."""
    found = run(*ON_H200, "--json")
    (group,) = found.json["groups"]
    assert found.code == found.json["exit_code"] == 0
    assert found.json["schema"] == "attnctl.select/1"
    assert group["layers"] == list(range(32))
    assert group["pick"] == group["winner"]["name"]
    assert group["winner"]["evidence"] in ("rule", "default", "measured", "only")
    assert group["winner"]["beat"][0]["because"]
    assert len(group["candidates"]) >= 20


def test_a_layer_that_does_two_things_counts_once() -> None:
    """Whisper's decoder layers look at themselves and at the encoder: 32 and 32 layers, not 96."""
    asked = ("select", "--model", str(MODELS / "whisper-large-v3.json"), "--machine", "h200")
    assert run(*asked, "--json").json["model"]["layers"] == 64


def test_every_rejected_candidate_gives_reasons_with_both_sides() -> None:
    """Each candidate that is not ok has reasons, each with code, wanted and found."""
    (group,) = run(*ON_H200, "--json").json["groups"]
    rejected = [one for one in group["candidates"] if not one["ok"]]
    assert rejected
    for one in rejected:
        assert one["reasons"]
        for reason in one["reasons"]:
            assert reason["code"]
            assert reason["wanted"]
            assert reason["found"]
            assert reason["verdict"] in ("unmet", "unknown")


def test_keys_of_the_config_are_sorted_by_what_they_did(tmp_path: Path) -> None:
    """The JSON names the keys that decided something, and those that did not."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(Path(LLAMA).read_text()), "wibble": 3}))
    found = run("select", "--model", str(path), "--machine", "h200", "--json")
    keys = found.json["model"]["config"]
    assert "num_key_value_heads" in keys["used"]
    assert "vocab_size" in keys["ignored"]
    assert "wibble" in keys["unknown"]


def test_the_text_shows_demands_pick_and_why() -> None:
    """The table of the text answer, and a last line that names the pick."""
    found = run(*ON_H200)
    pick = run(*ON_H200, "--json").json["groups"][0]["pick"]
    assert found.code == 0
    assert "32 heads, 8 KV, head 128, bfloat16" in found.out
    assert found.last_line == f"h200: {pick}"


def test_reasons_of_rejected_candidates_are_in_the_text() -> None:
    """With no package assumed, the pick is none and each candidate says what it lacks."""
    found = run(*ON_H200, "--assume-installed", "none")
    assert found.code == 1
    assert "not installed" in found.out
    assert "pip install" in found.out
    assert "no backend is eligible for full 0-31" in found.last_line


def test_groups_are_told_apart() -> None:
    """Gemma 3 has sliding and full layers: two groups, with the window in one."""
    found = run("select", "--model", GEMMA, "--machine", "h200")
    assert "sliding 0-61 without 5-59 step 6" in found.out
    assert "full 5-59 step 6" in found.out
    assert "window 1024" in found.out


def test_an_unmet_demand_exits_1_with_its_findings_and_the_usual_pick() -> None:
    """`--backend` names one that cannot serve: reasons, what the order would give, exit 1."""
    found = run(*ON_H200, "--backend", "flashmla")
    assert found.code == 1
    assert "FLASHMLA was requested and cannot serve these layers" in found.out
    assert "the order would give" in found.out
    assert "operation" in found.out


def test_an_unmet_demand_in_json_names_what_would_be_picked() -> None:
    """The JSON keeps pick null, and the usual pick apart."""
    usual = run(*ON_H200, "--json").json["groups"][0]["pick"]
    (group,) = run(*ON_H200, "--backend", "FLASHMLA", "--json").json["groups"]
    assert group["pick"] is None
    assert group["requested"] == "FLASHMLA"
    assert group["would_pick"] == usual


def test_a_fallback_is_taken_only_when_allowed() -> None:
    """`--allow-fallback` exits 0 and says in the answer that it fell back."""
    found = run(*ON_H200, "--backend", "FLASHMLA", "--allow-fallback")
    assert found.code == 0
    assert "FLASHMLA cannot serve these layers" in found.out


def test_a_demand_without_a_kind_touches_only_what_it_computes() -> None:
    """In a hybrid model, a demand for the attention layers leaves the Mamba layers alone."""
    model = str(MODELS / "jamba-1.5-mini.json")
    found = run(
        "select", "--model", model, "--machine", "h200", "--backend", "TRITON_ATTN", "--json"
    )
    asked = {group["kind"]: group["requested"] for group in found.json["groups"]}
    assert asked["full"] == "TRITON_ATTN"
    assert asked["mamba1"] is None


def test_a_demand_for_one_kind_leaves_the_others() -> None:
    """`sliding=NAME` is met in the sliding group, and the full group takes its own pick."""
    found = run(
        "select",
        "--model",
        GEMMA,
        "--machine",
        "h200",
        "--backend",
        "sliding=TRITON_ATTN",
        "--json",
    )
    picks = {group["kind"]: group["winner"]["evidence"] for group in found.json["groups"]}
    assert picks["sliding"] == "requested"
    assert picks["full"] != "requested"


def test_explain_shows_every_finding_of_one_backend() -> None:
    """`--explain NAME` lists rules that are met as well."""
    found = run(*ON_H200, "--explain", "FLASHMLA")
    assert "FLASHMLA for full 0-31: rejected" in found.out
    assert "met" in found.out
    assert "unmet" in found.out


def test_what_if_names_changes_that_flip_the_pick() -> None:
    """With nothing installed, `--what-if` under JSON lists single changes, each with its pick."""
    (group,) = run(*ON_H200, "--what-if", "--json").json["groups"]
    assert group["what_if"]
    for flip in group["what_if"]:
        assert flip["before"] == group["pick"]
        assert flip["after"] != group["pick"]


def test_several_machines_make_a_table() -> None:
    """Two machines, one model: one row each, and the picks of each group as columns."""
    found = run("select", "--model", GEMMA, "--machine", "h200", "--machine", "zen4")
    assert found.out.count("\nh200 ") == 1
    assert found.out.count("\nzen4 ") == 1
    assert "full 5-59 step 6" in found.out


def test_all_machines_make_one_document() -> None:
    """`--machine all --json` holds one report per bundled machine."""
    found = run("select", "--model", LLAMA, "--machine", "all", "--json")
    names = [report["machine"]["name"] for report in found.json["reports"]]
    assert found.json["schema"] == "attnctl.select-sweep/1"
    assert len(names) == len(set(names)) >= 30
    assert (
        found.code
        == found.json["exit_code"]
        == max(report["exit_code"] for report in found.json["reports"])
    )


def test_assumed_packages_are_named() -> None:
    """A bundled machine's answer says that its usual image was assumed; a list replaces it."""
    usual = run(*ON_H200, "--json").json
    listed = run(*ON_H200, "--assume-installed", "torch,triton==3.7.1", "--json").json
    assert "torch" in usual["assumed"]
    assert usual["assumed_because"] == "usual image of h200"
    assert listed["assumed"] == ["torch", "triton"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--dtype", "bfloat15"), "Did you mean bfloat16?"),
        (("--kv-cache-dtype", "fp8_e4m3fn"), "Did you mean fp8_e4m3?"),
        (("--backend", "FLASH_ATN"), "Did you mean FLASH_ATTN?"),
        (("--backend", "slidng=TRITON_ATTN"), "Did you mean sliding?"),
        (("--backend", "FLASH_ATTN", "--backend", "TRITON_ATTN"), "two backends"),
        (("--explain", "TRITON_ATN"), "Did you mean TRITON_ATTN?"),
        (("--assume-installed", "tritn"), "Did you mean triton?"),
        (("--assume-installed", ","), "empty"),
        (("--block-size", "0"), "--block-size 0"),
        (("--tp", "-1"), "--tp -1"),
        (("--max-model-len", "0"), "--max-model-len 0"),
        (("--device", "7"), "--device 7"),
        (("--profile", "no-such-profile.json"), "no-such-profile.json"),
    ],
)
def test_a_bad_option_is_one_sentence_with_a_way_out(words: tuple[str, ...], hint: str) -> None:
    """Each wrong option exits 2 with one line that names it, or the nearest right one."""
    found = run(*ON_H200, *words)
    assert (found.code, found.out) == (2, "")
    assert hint in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize("spelling", ["bf16", "torch.bfloat16", "BFloat16"])
def test_dtypes_are_taken_in_every_common_spelling(spelling: str) -> None:
    """bf16, torch.bfloat16 and BFloat16 are one dtype."""
    assert run(*ON_H200, "--dtype", spelling, "--json").json["groups"][0]["dtype"] == "bfloat16"


def test_a_model_comes_from_a_directory(tmp_path: Path) -> None:
    """A folder that holds a config.json is a model."""
    (tmp_path / "config.json").write_text(Path(LLAMA).read_text())
    found = run("select", "--model", str(tmp_path), "--machine", "h200", "--json")
    assert found.json["model"]["layers"] == 32


def test_a_model_comes_from_standard_input() -> None:
    """`--model -` reads the configuration that is piped in."""
    ended = subprocess.run(
        [sys.executable, "-m", "attnctl", "select", "--model", "-", "--machine", "h200", "--json"],
        cwd=ROOT,
        input=Path(LLAMA).read_bytes(),
        capture_output=True,
        check=True,
    )
    assert json.loads(ended.stdout)["model"]["layers"] == 32


def test_a_machine_file_is_a_machine(tmp_path: Path) -> None:
    """A saved machine gives the answer of the machine that was saved, less what was assumed."""
    path = tmp_path / "mine.json"
    machine = json.loads(run("probe", "--machine", "h200", "--json").out)
    path.write_text(json.dumps({**machine, "origin": "probed", "name": "mine"}))
    found = run("select", "--model", LLAMA, "--machine", str(path), "--json")
    assert found.json["machine"]["name"] == "mine"
    assert found.json["assumed"] == []
