"""Cross-compilation is red for each planted fault, and green for a launch without one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from attnctl.compiling.run import MODULE
from attnctl.processes.child import Worker
from attnctl.smoke.trials import Trial
from attnctl.smoke.workers import answers
from tests.compiling.planted_plugins import planted_plugins


@pytest.fixture(scope="module", autouse=True)
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with planted_plugins(tmp_path_factory.mktemp("triton")):
        yield


def tried(*pairs: tuple[str, int], timeout_s: float = 120.0, most: int = 512) -> list[Trial]:
    case = "paged(queries=1,contexts=16,window={})"
    lines = [f"MISCOMPILES {target} {most} {case.format(window)}" for target, window in pairs]
    return list(answers(lambda: Worker(module=MODULE), lines, timeout_s))


def test_each_fault_has_its_sentence() -> None:
    """A crash costs its own case; FP8 is native on Hopper and up-cast on CDNA 3."""
    found = tried(
        ("sm_90", 1), ("sm_90", 2), ("sm_90", 3), ("sm_90", 4), ("sm_90", 5),
        ("sm_90", 6), ("gfx942", 1), ("gfx942", 3), ("sm_75", 1), ("sm_90", 8),
    )  # fmt: skip
    says = [
        ("pass", ""),
        ("wrong", "bytes of shared memory, a block has 232448"),
        ("pass", ""),
        ("wrong", "hoard_kernel: spills"),
        ("error", "refuse_kernel: CompileTimeAssertionFailure: no such kernel"),
        ("crashed", "signal SIGABRT"),
        ("pass", ""),
        ("wrong", "its FP8 products are silently up-cast"),
        ("wrong", "multiplies f16 without the matrix unit"),
        ("wrong", "launches no Triton kernel"),
    ]
    for trial, (status, words) in zip(found, says, strict=True):
        assert trial.status == status, trial
        assert words in trial.detail


def test_a_compile_that_hangs_ends_at_the_limit() -> None:
    """And the next case is compiled by a new child."""
    statuses = [trial.status for trial in tried(("sm_90", 7), ("sm_90", 5), timeout_s=15.0)]
    assert statuses == ["timeout", "error"]


def test_the_budget_for_spills_is_the_lines_own() -> None:
    """What is red at 512 bytes is not at a megabyte."""
    (trial,) = tried(("sm_90", 4), most=1 << 20)
    assert trial.status == "pass"
