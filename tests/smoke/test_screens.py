"""What smoke's screens say where a backend ran nothing."""

from __future__ import annotations

from attnctl.findings import Finding, unmet
from attnctl.ops.catalog import all_cases
from attnctl.registry import load
from attnctl.render.plain import plain
from attnctl.render.smoke import listing_view, smoke_view, why_nothing
from attnctl.smoke.planning import plan, report, summary
from attnctl.smoke.trials import BackendTrials, Trial
from tests import machine_factory as box

TORCH = unmet("package", "torch", "not installed", fix="pip install torch")
FP8 = unmet("kv_cache_dtype", "auto", "fp8")
SINKS = unmet("sinks", "no sinks", "sinks")


def refused(*reasons: Finding) -> Trial:
    return Trial("paged()", "unsupported", reasons=reasons)


def test_what_every_case_lacks_is_the_reason() -> None:
    """A lack of one case beside it is left out; the fix is named."""
    said = why_nothing([refused(TORCH), refused(TORCH, FP8), refused(TORCH)])
    assert said == ("3 unsupported: package: wants torch, found not installed [pip install torch]")


def test_where_no_lack_is_common_the_two_most_frequent_are_named_with_their_counts() -> None:
    """Unknown cases are counted apart."""
    unsure = Trial("paged()", "unknown", reasons=(SINKS,))
    said = why_nothing([refused(FP8), refused(FP8), unsure])
    assert said == (
        "2 unsupported, 1 unknown: kv_cache_dtype: wants auto, found fp8 (2 of them); "
        "sinks: wants no sinks, found sinks (1 of them)"
    )


def test_a_run_of_nothing_says_why_for_each_backend() -> None:
    """The last sentence blames the cases, or what refused them, and never the machine alone."""
    idle = BackendTrials("CPU_ATTN", "cpu", "none", (refused(TORCH),))
    other = BackendTrials("GDN_ATTN", "cpu", "none", ())
    third = BackendTrials("CPU_MLA", "cpu", "none", ())
    lines = plain(smoke_view(report([idle, other, third]))).splitlines()
    assert "CPU_ATTN: 1 unsupported: package: wants torch, found not installed" in lines[-3]
    assert lines[-2] == ("GDN_ATTN, CPU_MLA: none of the cases is of an operation computed there")
    assert lines[-1] == "nothing ran: every case was refused"
    assert plain(smoke_view(report([other]))).splitlines()[-1] == (
        "nothing ran: no backend computes any of the cases"
    )


def test_what_every_backend_lacks_is_said_once() -> None:
    """Without torch nothing runs anywhere: one sentence says so, and each backend's own lacks."""
    one = BackendTrials("CPU_ATTN", "cpu", "none", (refused(TORCH), refused(TORCH, FP8)))
    other = BackendTrials("TRITON_ATTN", "interpret", "none", (refused(TORCH, SINKS),))
    lines = plain(smoke_view(report([one, other]))).splitlines()
    assert lines[-3:] == [
        "TRITON_ATTN: 1 unsupported: sinks: wants no sinks, found sinks",
        "every case of every backend: package: wants torch, found not installed "
        "[pip install torch]",
        "nothing ran: every case was refused",
    ]
    assert not any(line.startswith("CPU_ATTN:") for line in lines)


def test_what_kept_every_case_from_running_is_said_once() -> None:
    """A worker that cannot start says the same of a thousand cases; what ran is told one by one."""
    never = tuple(Trial(f"paged(window={n})", "error", 0.0, "no worker") for n in range(9))
    ran = tuple(Trial(f"paged(page={n})", "crashed", 0.5, "SIGSEGV") for n in (16, 32))
    for device, level in (("interpret", "interpret"), ("sm_90", "compile")):
        one = BackendTrials("TRITON_ATTN", device, level, never + ran)
        lines = [line.strip() for line in plain(smoke_view(report([one]))).splitlines()]
        whose = "TRITON_ATTN sm_90" if level == "compile" else "TRITON_ATTN"
        assert [line for line in lines if line.startswith(("error: ", "crashed: "))] == [
            f"error: {whose} paged(window=0)",
            f"error: 8 more cases of {whose} in the same words; --json has them",
            f"crashed: {whose} paged(page=16)",
            f"crashed: {whose} paged(page=32)",
        ]
        assert (lines.count("no worker"), lines.count("SIGSEGV")) == (1, 2)
        assert sum(line.startswith("again: ") for line in lines) == 3


def test_the_sum_counts_the_backends_that_ran_a_case() -> None:
    """One that refused all of its cases proved nothing."""
    ran = BackendTrials("CPU_ATTN", "cpu", "device", (Trial("paged()", "pass"),))
    idle = BackendTrials("FLASH_ATTN", "cuda", "none", (refused(TORCH),))
    lines = plain(smoke_view(report([ran, idle]))).splitlines()
    assert lines[-1] == "1 of 1 cases passed on 1 backend"
    assert not any(line.startswith("CPU_ATTN:") for line in lines)


def test_the_list_says_why_a_backend_has_no_case() -> None:
    """On a processor without torch nothing of CPU_ATTN's runs."""
    backend = load().get("CPU_ATTN")
    assert backend is not None
    found = plan(backend, box.cpu(packages=()), all_cases())
    lines = plain(listing_view([found])).splitlines()
    assert lines[0] == "CPU_ATTN: 0 cases, device"
    assert "unsupported: " in lines[1]
    assert "torch" in lines[1]
    assert summary(found, found.refused).level == "none"


def test_of_many_cases_that_fail_in_the_same_words_three_are_shown() -> None:
    """An interpreter that cannot start is one cause; what fails otherwise is shown whole."""
    same = [Trial(f"paged(page={16 * n})", "error", 0.1, "no worker") for n in range(1, 6)]
    other = Trial("paged(sinks=true)", "error", detail="a shape")
    hung = [Trial(f"paged(page={16 * n})", "timeout", 0.1, "no worker") for n in range(1, 5)]
    trials = (*same[:2], other, *same[2:], *hung)
    lines = plain(smoke_view(report([BackendTrials("CPU_ATTN", "cpu", "device", trials)])))
    told = [line for line in lines.splitlines() if line.startswith(("error", "timeout"))]
    assert told == [
        "error: CPU_ATTN paged(page=16)",
        "error: CPU_ATTN paged(page=32)",
        "error: CPU_ATTN paged(page=48)",
        "error: 2 more cases of CPU_ATTN in the same words; --json has them",
        "error: CPU_ATTN paged(sinks=true)",
        *(f"timeout: CPU_ATTN paged(page={16 * n})" for n in range(1, 5)),
    ]
    assert lines.count("again: attnctl smoke") == 8
