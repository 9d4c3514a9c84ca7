"""What smoke would run: per backend the level that it reaches and the least number of cases.

`unsupported` cannot pass for green: a backend that loses its cases shows here.
"""

from __future__ import annotations

import pytest

from attnctl import machines
from attnctl.assume import assume
from attnctl.machine import Machine
from attnctl.ops.catalog import all_cases
from attnctl.registry import load
from attnctl.smoke import plan, runnable_backends

REGISTRY = load()
CASES = all_cases()

# backend -> (level, least cases) on a processor without a GPU
ON_CPU = {
    "CPU_ATTN": ("device", 90),
    "CPU_MLA": ("device", 70),
    "CPU_MLA_SPARSE": ("device", 90),
    "FLEX_ATTENTION": ("device", 80),
    "GDN_ATTN": ("device", 60),
    "LINEAR_ATTN": ("device", 50),
    "MAMBA1_ATTN": ("device", 50),
    "MAMBA2_ATTN": ("device", 60),
    "SHORT_CONV_ATTN": ("device", 60),
    "TRITON_ATTN": ("interpret", 90),
    "TRITON_ATTN_DIFFKV": ("interpret", 4),
    "TRITON_MLA": ("interpret", 70),
    "TRITON_MLA_SPARSE": ("interpret", 90),
    "ROCM_AITER_UNIFIED_ATTN": ("interpret", 80),
    "XPU_MLA_SPARSE": ("interpret", 60),
}
# calls an installed package, which only its own machine has
ADAPTERS = {
    "FLASH_ATTN",
    "FLASH_ATTN_DIFFKV",
    "FLASH_ATTN_MLA",
    "FLASHINFER",
    "FLASHINFER_MLA",
    "FLASHINFER_MLA_SPARSE",
    "FLASHMLA",
    "FLASHMLA_SPARSE",
    "ROCM_AITER_FA",
    "ROCM_AITER_MLA",
    "ROCM_AITER_MLA_SPARSE",
    "ROCM_ATTN",
}


def box(name: str) -> Machine:
    return assume(
        machines.load(name), "torch,triton,flash_attn_3,flash_attn,vllm", REGISTRY
    ).machine


@pytest.mark.parametrize("name", ON_CPU)
def test_each_backend_reaches_its_level_with_its_cases(name: str) -> None:
    """On a CPU: natively where it has CPU kernels, else in Triton's interpreter."""
    backend = REGISTRY.get(name)
    assert backend is not None
    found = plan(backend, box("zen3"), CASES)
    level, least = ON_CPU[name]
    assert found.level == level
    assert len(found.runnable) >= least


def test_every_runnable_backend_is_accounted_for() -> None:
    """A new backend names its level here, or is an adapter."""
    assert {b.name for b in runnable_backends(REGISTRY)} == ON_CPU.keys() | ADAPTERS


@pytest.mark.parametrize(
    ("name", "level", "least"),
    [
        ("TRITON_ATTN", "device", 95),
        ("FLASH_ATTN", "device", 60),
        ("GDN_ATTN", "device", 60),
        ("CPU_ATTN", "device", 90),
        ("ROCM_AITER_UNIFIED_ATTN", "interpret", 80),
        ("FLASH_ATTN_MLA", "device", 55),
        ("FLASHMLA", "device", 45),
        ("FLASHMLA_SPARSE", "device", 60),
        ("XPU_MLA_SPARSE", "interpret", 60),
    ],
)
def test_on_an_h200_gpu_backends_run_on_it_and_cpu_backends_beside_it(
    name: str, level: str, least: int
) -> None:
    """The GPU takes no kernel away from the processor."""
    backend = REGISTRY.get(name)
    assert backend is not None
    found = plan(backend, box("h200"), CASES)
    assert (found.level, len(found.runnable) >= least) == (level, True)
