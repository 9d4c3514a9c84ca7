"""Hybrids: block sizes that vLLM 0.33 gives to cases of our own."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.engines import vllm
from attnctl.layer import Options
from attnctl.model.spec import ModelSpec
from tests.engines.invented import FULL, GDN, HYBRID, amd, intel, nvidia, processor

ATTN = {"num_heads": 16, "num_kv_heads": 2, "head_size": 256, "backends": ["TRITON_ATTN"]}
DELTA = {"kind": "gdn", "k_heads": 16, "v_heads": 32, "k_dim": 128, "v_dim": 128, "conv": 4}
A100 = {"platform": "cuda", "arch": "8.0", "profile": "full"}


def sizes(**case: Any) -> dict[str, Any]:
    return vllm.hybrid_blocks({**A100, "attn": ATTN, "state": DELTA, **case})


def test_qwen3_next_gets_544_on_an_a100() -> None:
    """Its state fills 536 tokens of 2,048 bytes; 544 is the next multiple of 16."""
    found = sizes()
    assert found["block_size"] == 544
    assert found["state_bytes"] == 1_097_728
    assert found["mamba_page_size_padded"] == 544 * 2048
    assert found["error"] is None


@pytest.mark.parametrize(
    ("case", "block_size"),
    [
        ({"tp": 2}, 544),
        ({"cache": {"cache_dtype": "fp8"}}, 1072),
        ({"cache": {"mamba_ssm_cache_dtype": "float32"}}, 1056),
        ({"cache": {"user_block_size": 64}}, 576),
        ({"num_spec": 3}, 560),
        ({"cache": {"mode": "align"}, "ckpt_align": 64}, 576),
        ({"platform": "xpu", "arch": "xpu"}, 576),
        ({"platform": "cpu", "arch": "aarch64", "attn": {**ATTN, "backends": ["CPU_ATTN"]}}, 640),
        ({"arch": "10.0", "attn": {**ATTN, "backends": ["FLASH_ATTN"]}}, 640),
        ({"arch": "10.0", "attn": {**ATTN, "backends": ["TRITON_FLASHINFER"]}}, 576),
        (
            {
                "arch": "10.0",
                "attn": {**ATTN, "backends": ["FLASH_ATTN"]},
                "cache": {"user_block_size": 64},
            },
            640,
        ),
        ({"arch": "11.0", "attn": {**ATTN, "backends": ["FLASH_ATTN"]}}, 544),
        ({"attn": {**ATTN, "backends": ["TRITON_ATTN", "FLASHINFER"]}}, 544),
    ],
)
def test_a_change_of_run_changes_the_block(case: dict[str, Any], block_size: int) -> None:
    """Cache and state dtypes, the user's granule, drafts, checkpoints and kernels all count."""
    assert sizes(**case)["block_size"] == block_size


def test_an_exact_fit_is_not_padded() -> None:
    """Three drafts make the state 1,146,880 bytes, which is 560 tokens exactly."""
    assert sizes(num_spec=3)["mamba_page_size_padded"] is None


def test_a_block_that_only_xpu_rounds_leaves_an_exact_fit_without_padding() -> None:
    """560 tokens fit; the delta rule's kernel wants 576, and what was not padded stays so."""
    found = sizes(platform="xpu", arch="xpu", num_spec=3)
    assert (found["block_size"], found["mamba_page_size_padded"]) == (576, None)


@pytest.mark.parametrize(("dtype", "error"), [("bfloat16", None), ("float16", "ValueError")])
def test_states_of_kimi_s_delta_rule_are_never_float16(dtype: str, error: str | None) -> None:
    """Every other kind of state may be."""
    cache = {"mamba_ssm_cache_dtype": dtype}
    state = {"kind": "kda", "heads": 32, "head_dim": 128, "conv": 4}
    assert sizes(state=state, cache=cache)["error"] == error
    assert sizes(cache=cache)["error"] is None


def test_a_rank_without_a_head_keeps_no_state_block() -> None:
    """Heads of linear attention divide downwards: on 8 ranks 4 heads leave nothing to keep."""
    state = {"kind": "linear", "heads": 4, "head_dim": 128}
    found = sizes(state=state, tp=8, cache={"mode": "align"})
    assert (found["state_bytes"], found["block_size"], found["mamba_block_size"]) == (0, 16, None)


def test_aligned_states_are_kept_once_per_block() -> None:
    """In mode align the state's block is the attention block; else only the last one is kept."""
    assert sizes(cache={"mode": "align"}, ckpt_align=64)["mamba_block_size"] == 576
    assert sizes()["mamba_block_size"] is None


def test_a_kernel_of_fixed_pages_cannot_serve_a_hybrid() -> None:
    """B12X takes blocks of 64 and 128 only, so the grown block is an error in vLLM."""
    found = sizes(arch="12.0", attn={**ATTN, "backends": ["B12X"]})
    assert found["error"] == "ValueError"
    assert found["block_size"] is None


def test_heads_that_do_not_divide_are_vllm_s_assertion() -> None:
    """32 value heads on 3 ranks: vLLM asserts before it allocates."""
    assert sizes(tp=3)["error"] == "AssertionError"


def test_a_hybrid_s_plan_is_vllm_s() -> None:
    """Qwen3-Next's shape on an A100, on Blackwell and on XPU."""
    plan = vllm.hybrid_plan(nvidia((8, 0)), HYBRID, Options())
    assert (plan.block_size, plan.state_bytes) == (544, 1_097_728)
    assert plan.mamba_page_size_padded == plan.page_bytes == 1_114_112
    assert (plan.attention, plan.states) == (("FLASH_ATTN",), ("GDN_ATTN",))
    assert [tensor.shape for tensor in plan.tensors] == [(3, 8192), (32, 128, 128)]
    assert vllm.hybrid_plan(nvidia((10, 0)), HYBRID, Options()).block_size == 640
    assert vllm.hybrid_plan(intel(), HYBRID, Options()).block_size == 576
    assert vllm.hybrid_plan(nvidia((8, 0)), HYBRID, Options(tp=2)).block_size == 544
    assert vllm.hybrid_plan(nvidia((8, 0)), HYBRID, Options(block_size=64)).block_size == 576
    assert vllm.hybrid_plan(nvidia((8, 0)), HYBRID, Options(), num_spec=3).block_size == 560


def test_a_plan_without_states_keeps_the_preferred_block() -> None:
    """Attention alone: nothing grows, nothing is padded; states alone have no block."""
    plain = ModelSpec(model_type="invented", groups=(FULL,), dtype="bfloat16")
    plan = vllm.hybrid_plan(amd("gfx942"), plain, Options())
    assert (plan.block_size, plan.state_bytes, plan.mamba_page_size_padded) == (16, 0, None)
    states = ModelSpec(model_type="invented", groups=(GDN,), dtype="bfloat16")
    plan = vllm.hybrid_plan(nvidia((9, 0)), states, Options())
    assert (plan.block_size, plan.error) == (None, None)


def test_a_plan_fails_where_a_group_gets_no_backend() -> None:
    """The error of the group is the error of the plan."""
    found = vllm.hybrid_plan(processor("avx2"), HYBRID, Options(kv_cache_dtype="nvfp4"))
    assert found.block_size is None
    assert "CPU_ATTN takes an unquantised cache" in str(found.error)
