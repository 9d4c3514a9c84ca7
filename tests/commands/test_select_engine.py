"""`attnctl select --engine vllm`: the engine's pick, beside the registry's, with its flags."""

from __future__ import annotations

import pytest

from tests.commands.running import LLAMA, MODELS, run

QWEN = str(MODELS / "qwen3-next-80b-a3b.json")
GPT_OSS = str(MODELS / "gpt-oss-20b.json")
DEEPSEEK = str(MODELS / "deepseek-v3.2.json")
DENSE = str(MODELS / "deepseek-v3.json")
MINICPM = str(MODELS / "minicpm3-4b.json")


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


def test_a_model_of_states_alone_has_no_block_size() -> None:
    """Codestral Mamba: what a state takes is said, and no blocks of None tokens."""
    model = str(MODELS / "codestral-mamba-7b.json")
    text = run("select", "--model", model, "--machine", "h100", "--engine", "vllm").out
    assert "\nstates of 2.1 MiB" in text
    assert "None" not in text


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


def test_what_flags_do_not_say_names_its_machine_among_several() -> None:
    """And its model; alone it needs neither."""
    many = run(
        *("select", "--model", DEEPSEEK, "--model", LLAMA, "--vllm-args"),
        *("--machine", "zen4", "--machine", "h200", "--machine", "zen4"),
    )
    assert many.out.count("\n") == 6
    told = [line.split(": ")[1] for line in many.err.splitlines()]
    places = [f"deepseek-v3.2 on {name}" for name in ("zen4", "zen4 #2")]
    assert told == places
    two = run("select", "-m", DEEPSEEK, "--machine", "zen4", "--machine", "h200", "--vllm-args")
    alone = run("select", "-m", DEEPSEEK, "--machine", "zen4", "--vllm-args")
    said = alone.err.removeprefix("attnctl: ").splitlines()[0]
    assert two.err.splitlines()[0] == f"attnctl: zen4: {said}"


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


def test_a_model_that_vllm_cannot_prefill_is_a_no() -> None:
    """MiniCPM3 decodes and never starts: exit 1, and nothing to pin."""
    words = ("select", "--model", MINICPM, "--machine", "h200", "--engine", "vllm")
    found = run(*words)
    assert found.code == 1
    assert "to pin it" not in found.out
    assert found.last_line == "h200: vllm does not start this model here"
    document = run(*words, "--json").json
    assert (document["exit_code"], document["engine"]["arguments"]) == (1, [])
    flags = run("select", "--model", MINICPM, "--machine", "h200", "--vllm-args")
    assert (flags.code, flags.out) == (1, "\n")
    assert "no prefill backend takes latent widths" in flags.err


def test_ranks_that_do_not_divide_lose_no_answer() -> None:
    """Qwen3-Next on three ranks: the registry answers, and vLLM's error stands beside it."""
    found = run("select", "--model", QWEN, "--machine", "h200", "--engine", "vllm", "--tp", "3")
    assert found.code == 1
    assert "16 query heads do not divide by --tp 3" in found.out
    assert "does not divide by --tp 3; take a divisor of it" in found.out


def test_a_variable_of_the_engines_environment_changes_its_pick() -> None:
    """AITER switched on: the heading and the command to pin it name the variable."""
    words = ("select", "--model", GPT_OSS, "--machine", "mi300x")
    found = run(*words, "--engine-env", "VLLM_ROCM_USE_AITER=1")
    assert found.code == 0
    assert "vllm 0.33.0 would pick with VLLM_ROCM_USE_AITER=1" in found.out
    assert "to pin it: VLLM_ROCM_USE_AITER=1 vllm serve MODEL" in found.out
    assert found.last_line == "mi300x: vllm takes ROCM_AITER_FA"
    asked = run(*words, "--engine-env", "VLLM_ROCM_USE_AITER=1", "--json").json["engine"]
    assert asked["environment"] == {"VLLM_ROCM_USE_AITER": "1"}
    assert run(*words, "--engine-env", "AITER=1").code == 2


def test_the_variables_of_this_process_count_for_this_machine_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What would be handed on here says nothing about another machine."""
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    here = run("select", "--model", LLAMA, "--engine", "vllm", "--json").json
    there = run("select", "--model", LLAMA, "--machine", "b200", "--engine", "vllm", "--json").json
    assert here["engine"]["environment"] == {"VLLM_BATCH_INVARIANT": "1"}
    assert there["engine"]["environment"] == {}


def test_a_backend_of_the_engine_alone_can_be_forced() -> None:
    """CUTLASS_MLA is in vLLM's table and not in the registry; without the engine it is unknown."""
    words = ("select", "--model", DENSE, "--machine", "b200", "--backend", "CUTLASS_MLA")
    found = run(*words, "--engine", "vllm", "--json")
    assert found.code == 0
    assert found.json["engine"]["groups"][0]["pick"] == "CUTLASS_MLA"
    assert found.json["groups"][0]["pick"] is None
    assert run(*words).code == 2


def test_rejections_show_what_removes_them() -> None:
    """The table has a column for the fix where any reason has one."""
    found = run(
        *("select", "--model", LLAMA, "--machine", "a100", "--engine", "vllm"),
        *("--kv-cache-dtype", "fp8"),
    )
    assert "KV cache fp8 with FlashAttention 2 on compute capability 8.0" in found.out
    assert "--kv-cache-dtype bfloat16" in found.out


def test_groups_whose_backends_ask_for_other_blocks_get_the_one_size_of_vllm() -> None:
    """AITER's unified attention asks for 64 alone, and takes the 16 that TRITON_ATTN has."""
    demands = ("--backend", "sliding=ROCM_AITER_UNIFIED_ATTN", "--backend", "full=TRITON_ATTN")
    found = run("select", "-m", GPT_OSS, "--machine", "mi300x", *demands, "--vllm-args")
    assert found.out == "--kv-cache-dtype auto --block-size 16\n"
    said = "--block-size: one size for all groups, 16; by themselves they would have 64 and 16"
    assert said in found.err


def test_the_block_that_the_user_fixed_stays_in_a_hybrids_flags() -> None:
    """It is the granule of the block that holds a state: 576 tokens with 64, 544 without."""
    words = (
        "select",
        "--model",
        QWEN,
        "--machine",
        "h200",
        "--profile",
        "none",
        "--engine",
        "vllm",
    )
    for more, block, pinned in (((), 544, False), (("--block-size", "64"), 576, True)):
        engine = run(*words, *more, "--profile", "none", "--json").json["engine"]
        assert engine["plan"]["block_size"] == block
        assert ("--block-size 64" in engine["arguments"]) is pinned
