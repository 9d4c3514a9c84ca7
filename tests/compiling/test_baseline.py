"""What changed since an earlier compilation."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from attnctl.compiling.baseline import compare_with, read_report
from attnctl.compiling.report import Launched
from attnctl.documents.files import as_json
from attnctl.exits import InputError
from attnctl.render.plain import plain
from attnctl.render.smoke import smoke_view
from attnctl.smoke.trials import BackendTrials, SmokeReport, Trial

MFMA = ("v_mfma_f32_32x32x8_bf16",)
ONE = Launched(
    kernel="prefill_kernel",
    variant="TILE=64",
    shared_bytes=1000,
    shared_limit_bytes=65536,
    registers=236,
    spills_bytes=0,
    products=("bf16",),
    matrix=MFMA,
)


def report(*trials: Trial, triton: str = "3.7.1", backend: str = "TRITON_ATTN") -> SmokeReport:
    one = BackendTrials(backend, "gfx942", "compile", trials)
    return SmokeReport(torch="2.13.0", triton=triton, backends=(one,), exit_code=0)


def passed(case: str = "paged()", **changes: object) -> Trial:
    return Trial(case, "pass", launches=(msgspec.structs.replace(ONE, **changes),))


def test_new_spills_and_registers_are_shown_and_only_the_spills_are_worse() -> None:
    """The case of another Triton: 236 registers without a spill, then 256 and 20 bytes."""
    found = compare_with(
        report(passed()), "old.json", report(passed(registers=256, spills_bytes=20), triton="3.9.0")
    )
    assert [(x.what, x.before, x.after, x.worse) for x in found.changes] == [
        ("spills_bytes", "0", "20", True),
        ("registers", "236", "256", False),
    ]
    assert (found.triton, found.worse, found.same) == ("3.7.1", 1, 0)


def test_a_new_failure_is_worse_and_a_mended_one_is_not() -> None:
    """The words of the failure are shown."""
    bad = Trial("paged()", "error", detail="prefill_kernel: RuntimeError: PassManager::run failed")
    (broken,) = compare_with(report(passed()), "", report(bad)).changes
    (mended,) = compare_with(report(bad), "", report(passed())).changes
    assert (broken.what, broken.after, broken.worse) == ("status", f"error: {bad.detail}", True)
    assert mended.worse is False


def test_a_lost_matrix_instruction_is_worse_and_another_one_is_shown() -> None:
    """The kind is what a reader looks for."""
    other = ("v_mfma_f32_16x16x16_bf16",)
    (lost,) = compare_with(report(passed()), "", report(passed(matrix=()))).changes
    (changed,) = compare_with(report(passed()), "", report(passed(matrix=other))).changes
    assert (lost.what, lost.worse) == ("matrix", True)
    assert (changed.before, changed.after, changed.worse) == (MFMA[0], other[0], False)


def test_cases_of_one_side_are_counted_and_equal_ones_are_silent() -> None:
    """New and gone ones, on targets that both runs have."""
    found = compare_with(
        report(passed("a()"), passed("b()")), "", report(passed("b()"), passed("c()"))
    )
    assert (found.changes, found.same, found.added, found.gone) == ((), 1, 1, 1)


def test_backends_that_share_a_kernel_tell_a_difference_once() -> None:
    """The launch is the same one."""
    both = [
        msgspec.structs.replace(
            report(trial), backends=(*report(trial).backends, *report(trial, backend="B").backends)
        )
        for trial in (passed(), passed(spills_bytes=8))
    ]
    assert len(compare_with(both[0], "", both[1]).changes) == 1


def test_a_written_report_reads_back_and_its_screen_names_both_versions(tmp_path: Path) -> None:
    """--json is what --baseline reads."""
    path = tmp_path / "old.json"
    path.write_bytes(as_json(report(passed(), triton="3.6.0")))
    now = report(passed(spills_bytes=20))
    changed = compare_with(read_report(str(path)), str(path), now)
    now = msgspec.structs.replace(now, baseline=changed, exit_code=1)
    text = plain(smoke_view(now))
    assert "triton 3.6.0 then, 3.7.1 now" in text
    assert "prefill_kernel spills" in text
    assert "0 cases are the same, 1 difference, 1 for the worse" in text
    assert text.splitlines()[-1] == (
        "1 of 1 case, 1 launch, compiled for 1 target with triton 3.7.1"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "is no report of smoke"),
        ('{"backends": [], "exit_code": 0}', "nothing in it was compiled"),
        ('{"schema": "attnctl.smoke/9", "backends": [], "exit_code": 0}', "is of schema"),
    ],
)
def test_another_file_is_refused(text: str, says: str, tmp_path: Path) -> None:
    """With what would write the right one."""
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_report(str(path))


@pytest.mark.parametrize("field", ["spills_bytes", "shared_bytes", "registers"])
def test_a_launch_that_no_device_would_hold_is_refused(field: str, tmp_path: Path) -> None:
    """Compared with, whatever spills today would be one for the better."""
    path = tmp_path / "old.json"
    path.write_bytes(as_json(report(passed(**{field: 10**12}))))
    with pytest.raises(InputError, match=rf"is no report of smoke \(.*<= 1.* - at `\$.*{field}`"):
        read_report(str(path))


@pytest.mark.parametrize("field", ["spills_bytes", "shared_bytes", "registers", "seconds"])
def test_a_launch_with_less_than_nothing_is_refused(field: str, tmp_path: Path) -> None:
    """Compared with, every launch of today would be one for the worse."""
    path = tmp_path / "old.json"
    path.write_bytes(as_json(report(passed(**{field: -1}))))
    with pytest.raises(InputError, match=rf"is no report of smoke \(.*>= 0.* - at `\$.*{field}`"):
        read_report(str(path))
