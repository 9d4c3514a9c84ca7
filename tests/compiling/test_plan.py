"""What would be compiled for which target, and what is unsupported there, with the reason."""

from __future__ import annotations

import pytest

from attnctl import machines
from attnctl.compiling.declared import compiled_backends, declared, spills_bytes
from attnctl.compiling.plan import plan_for
from attnctl.compiling.targets import NINE, archs, read_targets
from attnctl.exits import InputError
from attnctl.registry import load

REGISTRY = load()
COMPILED = compiled_backends(REGISTRY.backends)

E4M3 = "fp8_hardware: wants compute capability 8.9 or newer for e4m3, found 8.0"
LDS = "shared_memory: wants 73728 bytes per block for the smallest tile, found 65536 bytes"
AMD = "platform: wants AMD (ROCm), found NVIDIA (CUDA)"
PAGED = "heads=32,kv_heads=8,head_size=128"
DIFFKV = "heads=64,kv_heads=4,head_size=192,head_size_v=128,dtype=bfloat16"
PREFILL = f"queries=2048,contexts=2048,{PAGED}"
DECODE = f"queries=1+1,contexts=2048+2048,{PAGED}"
SPARSE = "queries=1+1,contexts=4096+4096,topk=2048"

# every pair of case and target that no kernel of ours is compiled for, among the nine
UNSUPPORTED = {
    ("sm_80", "TRITON_ATTN", f"paged({PREFILL},dtype=bfloat16,kv_cache_dtype=fp8_e4m3)", E4M3),
    ("sm_80", "TRITON_ATTN", f"paged({DECODE},dtype=bfloat16,kv_cache_dtype=fp8_e4m3)", E4M3),
    (
        *("sm_80", "TRITON_ATTN_DIFFKV"),
        f"diffkv(queries=1+1,contexts=2048+2048,{DIFFKV},kv_cache_dtype=fp8_e4m3)",
        E4M3,
    ),
    ("sm_80", "TRITON_MLA", "mla(queries=1+1,contexts=2048+2048,kv_cache_dtype=fp8_e4m3)", E4M3),
    ("sm_80", "TRITON_MLA_SPARSE", f"mla_sparse({SPARSE},kv_cache_dtype=fp8_ds_mla)", E4M3),
    (
        *("sm_80", "TRITON_MLA_SPARSE"),
        f"mla_sparse({SPARSE},heads=128,kv_cache_dtype=fp8_ds_mla)",
        E4M3,
    ),
    *(
        (target, "ROCM_AITER_UNIFIED_ATTN", f"paged({batch},page=64,dtype=bfloat16)", AMD)
        for target in ("sm_80", "sm_90", "sm_100", "sm_120")
        for batch in (PREFILL, DECODE)
    ),
    *(
        (target, backend, case, LDS)
        for target in ("gfx90a", "gfx942", "gfx1100", "gfx1201")
        for backend, case in (
            ("TRITON_MLA", "mla(queries=1+1,contexts=2048+2048,dtype=float32)"),
            ("TRITON_MLA", "mla(form=uncompressed,queries=512,contexts=1024,dtype=float32)"),
            ("TRITON_MLA_SPARSE", f"mla_sparse({SPARSE},dtype=float32)"),
        )
    ),
}


def test_the_pairs_that_are_unsupported_are_these() -> None:
    """FP8's e4m3 on sm_80, AMD's own backend on NVIDIA, float32 latent rows in 64 KiB."""
    found = {
        (
            plan.device,
            backend.name,
            trial.case,
            f"{reason.code}: wants {reason.wanted}, found {reason.found}",
        )
        for target in read_targets(NINE)
        for backend in COMPILED
        for plan in [plan_for(target, backend, declared(backend))]
        for trial in plan.refused
        for reason in trial.reasons
    }
    assert found == UNSUPPORTED


@pytest.mark.parametrize("arch", ["sm_70", "sm_75"])
def test_before_compute_capability_8_nothing_is_compiled(arch: str) -> None:
    """Products would be scalar there: unsupported, and the reason says so."""
    (target,) = read_targets(arch)
    for backend in COMPILED:
        plan = plan_for(target, backend, declared(backend))
        assert plan.runnable == ()
        for trial in plan.refused:
            assert "compute_capability" in {reason.code for reason in trial.reasons}


def test_every_bundled_backend_with_triton_kernels_declares_what_is_compiled() -> None:
    """A new one shows here: those without are of a processor, or torch writes their kernels."""
    bundled = {backend.name for backend in REGISTRY.backends if backend.kernel == "bundled"}
    without = bundled - {backend.name for backend in COMPILED}
    # upstream Triton has no compiler for Intel's devices
    assert without - {"XPU_MLA_SPARSE"} == {
        *("CPU_ATTN", "CPU_MLA", "CPU_MLA_SPARSE", "FLEX_ATTENTION")
    }


def test_a_quick_compilation_keeps_a_part_of_each_backends_cases() -> None:
    """ROCM_AITER_UNIFIED_ATTN has no kernel that TRITON_ATTN has not."""
    for backend in COMPILED:
        quick, whole = (
            [case.text for case in declared(backend, quick=only)] for only in (True, False)
        )
        assert set(quick) < set(whole)
        assert quick or backend.name == "ROCM_AITER_UNIFIED_ATTN"


def test_a_target_takes_its_facts_from_a_bundled_machine() -> None:
    """Its shared memory, and torch and triton wherever they run."""
    (target,) = read_targets("gfx942")
    assert target.gpus[0].shared_memory_bytes == 65536
    assert target.packages["triton"].status == "assumed"
    assert len(archs()) >= 15
    for arch, machine in archs().items():
        assert machine.name in machines.names()
        assert arch in {gpu.arch for gpu in machine.gpus}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sm_9", "--compile-for sm_9: no such target. Did you mean sm_90?"),
        ("xe2", "--compile-for xe2: no such target"),
        (",", "--compile-for: the list is empty"),
    ],
)
def test_a_target_that_is_not_known_is_refused(text: str, says: str) -> None:
    """One sentence, with the nearest name."""
    with pytest.raises(InputError) as refused:
        read_targets(text)
    assert says in str(refused.value)


def test_a_target_named_twice_counts_once() -> None:
    """Case and spaces do not matter."""
    assert [m.gpus[0].arch for m in read_targets("SM_90, gfx942,sm_90")] == ["sm_90", "gfx942"]


@pytest.mark.parametrize("text", ["all,sm_90", "sm_90,ALL", " all , sm_90,all"])
def test_all_may_stand_in_a_list(text: str) -> None:
    """It is the nine targets, each once, in the order in which they were named first."""
    found = [machine.gpus[0].arch for machine in read_targets(text)]
    assert sorted(found) == sorted(NINE.split(","))
    assert [one.gpus[0].arch for one in read_targets("sm_103,all")][:2] == ["sm_103", "sm_80"]


@pytest.mark.parametrize(
    ("name", "arch", "most"),
    [
        ("TRITON_ATTN", "gfx1100", 1536),
        ("TRITON_ATTN", "gfx1201", 1152),
        ("TRITON_ATTN", "gfx942", 512),
        ("TRITON_MLA", "gfx1100", 1792),
        ("TRITON_MLA", "sm_90", 512),
    ],
)
def test_a_backend_may_state_what_it_spills_where(name: str, arch: str, most: int) -> None:
    """By the arch's prefix; the budget of a run holds everywhere else."""
    backend = REGISTRY.get(name)
    assert backend is not None
    assert spills_bytes(backend, arch, 512) == most
