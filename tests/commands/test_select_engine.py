"""`attnctl select --engine vllm`: the engine's pick, beside the registry's, with its flags."""

from __future__ import annotations

import pytest

from tests.commands.running import LLAMA, MODELS, run

QWEN = str(MODELS / "qwen3-next-80b-a3b.json")
GPT_OSS = str(MODELS / "gpt-oss-20b.json")
DEEPSEEK = str(MODELS / "deepseek-v3.2.json")


def test_the_engine_names_its_pick_its_order_and_every_rejection() -> None:
    """On an A100 vLLM takes TRITON_ATTN for sinks, and says what failed before it."""
    found = run("select", "--model", GPT_OSS, "--machine", "a100", "--engine", "vllm", "--json")
    engine = found.json["engine"]
    assert (found.code, engine["engine"], engine["version"]) == (0, "vllm", "0.33.0")
    for group in engine["groups"]:
        assert group["pick"] == "TRITON_ATTN"
        assert group["priority"][0] == "FLASH_ATTN"
        assert {reason["code"] for reason in group["rejected"]["FLASH_ATTN"]} == {"sinks"}
    assert engine["differences"] == []


def test_a_hybrids_block_size_is_shown_and_not_pinned() -> None:
    """Qwen3-Next gets 544-token blocks on an A100; no flag is given that would move them."""
    asked = ("select", "--model", QWEN, "--machine", "a100-80gb", "--engine", "vllm")
    found = run(*asked, "--json")
    assert found.json["engine"]["plan"]["block_size"] == 544
    assert not any("--block-size" in line for line in found.json["engine"]["arguments"])
    assert "block size for the whole model: 544 tokens" in run(*asked).out


def test_where_the_two_differ_the_reason_is_one_sentence() -> None:
    """On MI300X the registry takes AITER as installed, and vLLM has it switched off."""
    found = run("select", "--model", GPT_OSS, "--machine", "mi300x", "--engine", "vllm")
    assert "where vllm and this registry differ" in found.out
    assert "VLLM_ROCM_USE_AITER=1 would change the pick to ROCM_AITER_FA" in found.out


def test_only_the_flags_are_printed_when_asked() -> None:
    """One line that can be pasted behind `vllm serve MODEL`."""
    found = run("select", "--model", DEEPSEEK, "--machine", "b200", "--vllm-args")
    assert found.code == 0
    assert found.out.startswith("--attention-backend FLASHMLA_SPARSE ")
    assert found.out.count("\n") == 1


def test_the_engines_refusal_is_a_no() -> None:
    """Sparse MLA on a CPU: vLLM refuses, whatever the registry has."""
    found = run("select", "--model", DEEPSEEK, "--machine", "zen4", "--engine", "vllm")
    assert found.code == 1
    assert "refuses" in found.out


def test_a_sweep_shows_the_engines_picks() -> None:
    """Machines down, the engine's pick across."""
    found = run(
        *("select", "--model", LLAMA, "--machine", "b200", "--machine", "mi210"),
        *("--engine", "vllm", "--json"),
    )
    picks = [one["engine"]["groups"][0]["pick"] for one in found.json["reports"]]
    assert picks == ["FLASHINFER", "ROCM_ATTN"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--engine", "vlm"), "did you mean"),
        (("--engine", "vllm", "--engine-version", "0.1"), "no table of it"),
    ],
)
def test_an_unknown_engine_or_version_is_one_sentence(words: tuple[str, ...], says: str) -> None:
    """Exit 2, with what is known."""
    found = run("select", "--model", LLAMA, "--machine", "h200", *words)
    assert found.code == 2
    assert says in found.err.lower()


def test_a_package_that_only_the_engine_asks_about_can_be_assumed() -> None:
    """tokenspeed_mla is no backend's here, and vLLM's list changes with it."""
    found = run(
        *("select", "--model", LLAMA, "--machine", "b200", "--engine", "vllm"),
        *("--assume-installed", "torch,triton,vllm,tokenspeed_mla"),
    )
    assert found.code == 0
