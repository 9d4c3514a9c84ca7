"""What the kernels become on GPUs that are not here: a handful, the whole table is tools/'s."""

from __future__ import annotations

import pytest

from attnctl import machines
from attnctl.exits import InputError
from attnctl.kernels.triton.crosscompile import (
    SHARED_MEMORY,
    CompileCase,
    Failure,
    Report,
    compile_in_child,
    shared_limit,
)


def reports(case: CompileCase, target: str) -> tuple[Report, ...]:
    outcome = compile_in_child(case, target)
    assert not isinstance(outcome, Failure), outcome.reason
    return outcome


def test_hopper_prefill_uses_its_warpgroup_products() -> None:
    """Pages of 128 by tensor descriptors: wgmma, within shared memory, few spills."""
    (prefill,) = reports(CompileCase(kernel="prefill", page=128), "sm_90")
    assert prefill.faults() == ()
    assert any(name.startswith("wgmma.mma_async") for name in prefill.matrix)


def test_cdna3_decode_uses_matrix_cores_within_64_kb() -> None:
    """Both launches of a split decode on gfx942: the first multiplies, the second only sums."""
    decode, reduction = reports(CompileCase(kernel="decode", width=64), "gfx942")
    assert (decode.kernel, reduction.kernel) == ("decode_kernel", "reduce_kernel")
    assert decode.faults() == () == reduction.faults()
    assert any(name.startswith("v_mfma") for name in decode.matrix)
    assert decode.shared_limit_bytes == 65536


def test_fp8_on_ampere_is_refused_with_the_reason() -> None:
    """sm_80 has no such type: a reason in one line, not a dump of the module."""
    outcome = compile_in_child(CompileCase(kernel="decode", width=64, cache="e4m3"), "sm_80")
    assert isinstance(outcome, Failure)
    assert "fp8e4nv not supported in this architecture" in outcome.reason


def test_each_fault_of_a_report_is_named() -> None:
    """Too much shared memory, too many spills, no matrix unit: each is a fault, alone."""
    good = Report(
        kernel="prefill_kernel",
        target="sm_90",
        shared_bytes=1000,
        shared_limit_bytes=2000,
        registers=128,
        spills=0,
        matrix=("wgmma.mma_async",),
    )
    assert good.faults() == ()
    changes: tuple[dict[str, object], ...] = (
        {"shared_bytes": 2001},
        {"spills": 513},
        {"matrix": ()},
    )
    for change in changes:
        bad = Report(**{**{f: getattr(good, f) for f in good.__struct_fields__}, **change})
        assert len(bad.faults()) == 1


def test_an_unknown_target_is_an_input_error() -> None:
    """The sentence names the targets that are known."""
    with pytest.raises(InputError, match=r"no such target: sm_1; known are sm_80"):
        shared_limit("sm_1")


def test_the_limits_are_those_of_the_bundled_machines() -> None:
    """Wherever a bundled machine has a target's arch, it gives a block as much shared memory."""
    found = [machines.load(name) for name in machines.names()]
    gpus = [gpu for one in found for gpu in (*one.nvidia.gpus, *one.amd.gpus)]
    known = {gpu.arch: gpu.shared_memory_bytes for gpu in gpus if gpu.arch in SHARED_MEMORY}
    assert len(known) >= 9
    assert known == {arch: SHARED_MEMORY[arch] for arch in known}
