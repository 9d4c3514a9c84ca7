"""What smoke would run: per backend the level that it reaches and the least number of cases.

`unsupported` cannot pass for green: a backend that loses its cases shows here.
"""

from __future__ import annotations

import pytest

from attnctl import machines
from attnctl.compiling.declared import compiled_backends, declared
from attnctl.compiling.plan import plan_for
from attnctl.compiling.targets import stand_in
from attnctl.machine import Machine
from attnctl.machines.assumed import assume
from attnctl.ops.catalog import all_cases
from attnctl.registry import load
from attnctl.smoke.planning import plan, runnable_backends

REGISTRY = load()
CASES = all_cases()

# backend -> (level, least cases) on a processor without a GPU
ON_CPU = {
    "CPU_ATTN": ("device", 180),
    "CPU_MLA": ("device", 80),
    "CPU_MLA_SPARSE": ("device", 100),
    "FLEX_ATTENTION": ("device", 150),
    "GDN_ATTN": ("device", 70),
    "LINEAR_ATTN": ("device", 55),
    "MAMBA1_ATTN": ("device", 58),
    "MAMBA2_ATTN": ("device", 70),
    "SHORT_CONV_ATTN": ("device", 65),
    "TRITON_ATTN": ("interpret", 160),
    "TRITON_ATTN_DIFFKV": ("interpret", 22),
    "TRITON_MLA": ("interpret", 80),
    "TRITON_MLA_SPARSE": ("interpret", 100),
    "ROCM_AITER_UNIFIED_ATTN": ("interpret", 150),
    "XPU_MLA_SPARSE": ("interpret", 100),
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


# where its own GPU is there: what ON_CPU interprets runs on the device itself
ON_GPU = {
    "h200": {"TRITON_ATTN", "TRITON_ATTN_DIFFKV", "TRITON_MLA", "TRITON_MLA_SPARSE"},
    "mi300x": {"TRITON_ATTN", "TRITON_MLA", "ROCM_AITER_UNIFIED_ATTN"},
    "arc-b580": {"TRITON_ATTN", "TRITON_MLA_SPARSE", "XPU_MLA_SPARSE"},
}


@pytest.mark.parametrize("machine", ON_GPU)
@pytest.mark.parametrize("name", ON_CPU)
def test_a_gpu_takes_no_case_from_any_backend(machine: str, name: str) -> None:
    """Its own backends run on it, a processor's beside it, another vendor's stay interpreted."""
    backend = REGISTRY.get(name)
    assert backend is not None
    found = plan(backend, box(machine), CASES)
    level, least = ON_CPU[name]
    assert found.level == ("device" if name in ON_GPU[machine] else found.level)
    assert level != "device" or found.level == "device"
    # fewer by those that the GPU's own limits refuse
    assert len(found.runnable) >= least - 8


def test_flash_attention_has_its_cases_on_an_h200() -> None:
    """An adapter's package is assumed to be there."""
    backend = REGISTRY.get("FLASH_ATTN")
    assert backend is not None
    found = plan(backend, box("h200"), CASES)
    assert (found.level, len(found.runnable) >= 60) == ("device", True)


# backend -> cases that are compiled for an NVIDIA and for an AMD GPU, at least
COMPILED = {
    "GDN_ATTN": (6, 6),
    "LINEAR_ATTN": (4, 4),
    "MAMBA1_ATTN": (4, 4),
    "MAMBA2_ATTN": (5, 5),
    "ROCM_AITER_UNIFIED_ATTN": (0, 2),
    "SHORT_CONV_ATTN": (5, 5),
    "TRITON_ATTN": (19, 19),
    "TRITON_ATTN_DIFFKV": (3, 3),
    "TRITON_MLA": (8, 8),
    "TRITON_MLA_SPARSE": (6, 6),
}


@pytest.mark.parametrize("name", COMPILED)
def test_each_backend_is_compiled_for_gpus_that_are_not_here(name: str) -> None:
    """With its cases: one that loses them shows here."""
    backend = REGISTRY.get(name)
    assert backend is not None
    plans = [plan_for(stand_in(arch), backend, declared(backend)) for arch in ("sm_90", "gfx942")]
    assert {one.level for one in plans} == {"compile"}
    for one, least in zip(plans, COMPILED[name], strict=True):
        assert len(one.runnable) >= least


def test_every_compiled_backend_is_accounted_for() -> None:
    """A new one names its cases above."""
    assert {backend.name for backend in compiled_backends(REGISTRY.backends)} == COMPILED.keys()
