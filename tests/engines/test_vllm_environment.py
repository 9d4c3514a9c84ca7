"""The variables that vLLM's choice reads: how they are spelt, and what they change."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.engines import vllm
from attnctl.engines.vllm.environment import read_environment, switches_of
from attnctl.exits import InputError
from attnctl.layer import Options
from attnctl.machine import Machine
from attnctl.model.spec import LayerGroup, ModelSpec
from tests.engines.invented import FULL, GDN, HYBRID, SPARSE, amd, intel, nvidia

DENSE = msgspec.structs.replace(SPARSE, kind="mla", indexer=None)
AITER = {"VLLM_ROCM_USE_AITER": "1"}
INVARIANT = {"VLLM_BATCH_INVARIANT": "1"}


def pick(machine: Machine, group: LayerGroup, environment: dict[str, str]) -> str | None:
    spec = ModelSpec(model_type="invented", groups=(group,), dtype="bfloat16")
    return vllm.explain(machine, group, Options(), spec, environment=environment).pick


@pytest.mark.parametrize(
    ("machine", "group", "environment", "before", "after"),
    [
        (amd("gfx942", "aiter", "flash_attn"), DENSE, AITER, "TRITON_MLA", "ROCM_AITER_MLA"),
        (
            *(amd("gfx942", "aiter"), msgspec.structs.replace(FULL, sinks=True), AITER),
            *("ROCM_AITER_UNIFIED_ATTN", "ROCM_AITER_FA"),
        ),
        (amd("gfx1201", "aiter"), FULL, AITER, "ROCM_ATTN", "ROCM_AITER_UNIFIED_ATTN"),
        (nvidia((10, 0), "flashinfer"), FULL, INVARIANT, "FLASHINFER", "FLASH_ATTN"),
        (amd("gfx942"), FULL, INVARIANT, "ROCM_ATTN", "TRITON_ATTN"),
        (intel(), FULL, INVARIANT, "FLASH_ATTN", "TRITON_ATTN"),
        (nvidia((9, 0)), GDN, INVARIANT, "GDN_ATTN", None),
    ],
)
def test_a_switch_changes_the_pick(
    machine: Machine,
    group: LayerGroup,
    environment: dict[str, str],
    before: str | None,
    after: str | None,
) -> None:
    """Off is vLLM's default; on, the same layer on the same machine takes another backend."""
    assert pick(machine, group, {}) == before
    assert pick(machine, group, environment) == after
    off = dict.fromkeys(environment, "0")
    assert pick(machine, group, off) == before


def test_states_that_must_be_batch_invariant_are_refused() -> None:
    """No state backend is; the error names the switch, and the plan has no size."""
    plan = vllm.hybrid_plan(nvidia((9, 0)), HYBRID, Options(), environment=INVARIANT)
    assert plan.block_size is None
    assert "VLLM_BATCH_INVARIANT=1" in str(plan.error)


def test_the_layout_of_convolution_states_is_a_variable() -> None:
    """DS keeps channels first; nothing changes in size."""
    usual = vllm.hybrid_plan(nvidia((9, 0)), HYBRID, Options())
    turned = vllm.hybrid_plan(
        nvidia((9, 0)), HYBRID, Options(), environment={"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}
    )
    assert [one.shape for one in usual.tensors] == [(3, 8192), (32, 128, 128)]
    assert [one.shape for one in turned.tensors] == [(8192, 3), (32, 128, 128)]
    assert turned.block_size == usual.block_size


def test_words_go_before_the_process() -> None:
    """A process on this machine counts where nothing was said; what decides nothing does not."""
    process = {"VLLM_ROCM_USE_AITER": "true", "VLLM_BATCH_INVARIANT": "", "HOME": "/"}
    assert read_environment((), process) == {"VLLM_ROCM_USE_AITER": "1"}
    assert read_environment(["VLLM_ROCM_USE_AITER=False"], process) == {"VLLM_ROCM_USE_AITER": "0"}
    assert switches_of({"VLLM_ROCM_USE_AITER": "1", "HOME": "/"}).aiter


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("VLLM_ROCM_USE_ATER=1", "Did you mean VLLM_ROCM_USE_AITER"),
        ("PATH=1", "reads no such variable. Known are"),
        ("VLLM_BATCH_INVARIANT", "give a value"),
        ("VLLM_BATCH_INVARIANT=maybe", "takes 1 or 0"),
        ("VLLM_SSM_CONV_STATE_LAYOUT=1", "takes SD or DS"),
        ("", "reads no such variable"),
    ],
)
def test_a_variable_that_decides_nothing_is_refused(word: str, says: str) -> None:
    """One sentence that says what is known."""
    with pytest.raises(InputError) as raised:
        read_environment([word], {})
    assert says.lower() in str(raised.value).lower()
