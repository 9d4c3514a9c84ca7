"""Every Triton kernel of ours, with its shipped defaults, on GPUs that are not here.

All nine targets with every case: make compile.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import attnctl
from attnctl.compiling.report import Launched
from attnctl.smoke.trials import BAD, SmokeReport
from tests.compiling.compiled import compiled, compiled_around

# one of each kind of matrix unit, and the least shared memory and registers among them
EVERY_KERNEL = "sm_90,sm_100,sm_120,gfx942,gfx1100"
# what the others differ in shows in the kernels that multiply
THE_REST = "sm_80,gfx90a,gfx950,gfx1201"
# kernels that no quick case meets, and what stands around a library's
ONE_OR_TWO = "sm_90,gfx942"
FURTHER = (
    "gdn(queries=2048,kda=true,gate=true,k_heads=32,v_heads=32,head_k_dim=128,head_v_dim=128)",
    "indexer(queries=1,contexts=8192,topk=2048)",
)
MOST_COMPILES = 200


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[SmokeReport, ...]:
    cache = tmp_path_factory.mktemp("triton")
    found = (
        compiled(cache, "--quick", "--compile-for", EVERY_KERNEL),
        compiled(cache, "--quick", "--compile-for", THE_REST, "--backend", "TRITON_ATTN"),
        compiled(
            cache,
            *("--compile-for", "gfx942"),
            *(word for case in FURTHER for word in ("--case", case)),
        ),
    )
    return tuple(report for _, report in found)


def test_all_of_them_compile_within_the_limits(reports: tuple[SmokeReport, ...]) -> None:
    """Shared memory, spills, matrix instructions; what fails says what and how to see it again."""
    bad = [
        f"{one.backend} {one.device} {trial.case}: {trial.status}: {trial.detail}"
        for report in reports
        for one in report.backends
        for trial in one.trials
        if trial.status in BAD
    ]
    assert bad == []
    assert [report.exit_code for report in reports] == [0, 0, 0]


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> tuple[Launched, ...]:
    return compiled_around(tmp_path_factory.mktemp("around"), ONE_OR_TWO)


def test_what_stands_around_a_librarys_kernel_compiles_too(around: tuple[Launched, ...]) -> None:
    """Within the limits of the targets, though no bundled backend launches it there."""
    assert len(around) == 3 * len(ONE_OR_TWO.split(","))
    assert [one.kernel for one in around if one.faults()] == []


def test_no_kernel_is_left_out(
    reports: tuple[SmokeReport, ...], around: tuple[Launched, ...]
) -> None:
    """Each kernel in the folder was compiled for some target: a new one needs a case."""
    folder = Path(attnctl.__file__).parent / "kernels" / "triton"
    written = {
        node.name
        for path in folder.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel")
    }
    launched = {
        launch.kernel
        for report in reports
        for one in report.backends
        for trial in one.trials
        for launch in trial.launches
    }
    launched |= {one.kernel for one in around}
    assert written - launched == set()
    assert len(written) >= 31


def test_the_matrix_units_own_instructions_are_used(reports: tuple[SmokeReport, ...]) -> None:
    """Hopper's, Blackwell's, CDNA's and RDNA's, each by its name."""
    wanted = {
        "sm_90": "wgmma",
        "sm_100": "tcgen05",
        "sm_120": "mma.sync",
        "gfx942": "v_mfma",
        "gfx1100": "v_wmma",
    }
    for target, prefix in wanted.items():
        (prefill,) = (
            launch
            for one in reports[0].backends
            if (one.backend, one.device) == ("TRITON_ATTN", target)
            for trial in one.trials
            for launch in trial.launches
            if launch.kernel in ("prefill_kernel", "prefill_hopper_kernel")
        )
        assert any(name.startswith(prefix) for name in prefill.matrix)
        assert prefill.products == ("bf16",)


def test_the_tests_compile_no_more_than_they_may(
    reports: tuple[SmokeReport, ...], around: tuple[Launched, ...]
) -> None:
    """And every one was really compiled, by the Triton that is installed."""
    launches = {
        (one.device, launch.kernel, launch.variant)
        for report in reports
        for one in report.backends
        for trial in one.trials
        for launch in trial.launches
    }
    assert 100 <= len(launches) + len(around) <= MOST_COMPILES
    assert all(report.triton and report.torch for report in reports)
