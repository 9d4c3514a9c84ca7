"""What smoke runs where: kernels of ours are interpreted, calls into packages are not."""

from __future__ import annotations

import pytest

from attnctl.ops.paged_cases import cases
from attnctl.registry import load
from attnctl.smoke import plan
from tests import machine_factory as box

ADAPTERS = ("FLASH_ATTN", "FLASH_ATTN_DIFFKV", "FLASHINFER", "ROCM_ATTN", "ROCM_AITER_FA")


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_is_refused_on_a_processor_with_its_reasons(name: str) -> None:
    """Its package has nothing that Triton's interpreter could run."""
    backend = load().get(name)
    assert backend is not None
    assert backend.kernel == "adapter"
    found = plan(backend, box.cpu(), cases())
    assert not found.runnable
    assert {trial.status for trial in found.refused} == {"unsupported"}
    assert all(any(x.code == "platform" for x in trial.reasons) for trial in found.refused)


def test_flash_attention_runs_what_it_takes_on_hopper() -> None:
    """A chunk of a block and a half is refused there, and a whole one is not."""
    backend = load().get("FLASH_ATTN")
    assert backend is not None
    found = plan(backend, box.cuda(9), cases())
    assert found.level == "device"
    assert len(found.runnable) >= 50
    assert not any("chunk=24" in text for text in found.runnable)


def test_flex_attention_runs_on_a_processor() -> None:
    """All but sinks and FP8 caches."""
    backend = load().get("FLEX_ATTENTION")
    assert backend is not None
    machine = box.cpu(packages=("torch", "triton"))
    found = plan(backend, machine, cases())
    assert (found.device, found.level) == ("cpu", "device")
    assert len(found.runnable) >= 80
    assert all("sinks" in x.case or "fp8" in x.case for x in found.refused)
