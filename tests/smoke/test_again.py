"""The line below a failure brings that failure back: with every option that its result hangs on."""

from __future__ import annotations

import shlex
from xml.etree.ElementTree import fromstring

import pytest

from attnctl.render.plain import plain
from attnctl.render.smoke import smoke_view
from attnctl.smoke.again import options_of
from attnctl.smoke.junit import junit_file
from attnctl.smoke.request import Request, refuse
from attnctl.smoke.trials import BackendTrials, Level, SmokeReport, Trial

CASE = "paged(queries=1+1,contexts=20+33)"


def failed(request: Request, device: str, level: Level) -> SmokeReport:
    one = BackendTrials("TRITON_ATTN", device, level, (Trial(CASE, "wrong", 0.1, "too far off"),))
    return SmokeReport(backends=(one,), options=options_of(request), exit_code=1)


@pytest.mark.parametrize(
    ("request_", "device", "level", "words"),
    [
        (Request(), "cuda", "device", []),
        (
            Request(every=True, quick=True, device="interpret", twice=True, timeout_s=7.5),
            "interpret",
            "interpret",
            ["--device", "interpret", "--timeout", "7.5", "--determinism"],
        ),
        (Request(every=True, perf=True, device="cuda:1"), "cuda:1", "device", ["--perf"]),
        (
            Request(targets="all", most_spills_bytes=0, every_knob=True, timeout_s=900),
            "sm_90",
            "compile",
            ["--compile-for", "sm_90", "--timeout", "900", "--spills", "0", "--every-knob"],
        ),
    ],
    ids=["plain", "interpreted", "timed", "compiled"],
)
def test_the_line_repeats_the_options_of_the_run(
    request_: Request, device: str, level: Level, words: list[str]
) -> None:
    """On the screen and in JUnit's file alike; it is itself a run that makes sense."""
    report = failed(request_, device, level)
    (said,) = [line for line in plain(smoke_view(report)).splitlines() if "again: " in line]
    command = said.partition("again: ")[2]
    parts = shlex.split(command)
    assert parts[:4] == ["attnctl", "smoke", "--backend", "TRITON_ATTN"]
    assert parts[-2:] == ["--case", CASE]
    assert set(words) <= set(parts[4:-2])
    assert ("--device" in parts) == (request_.device is not None)
    faults = fromstring(junit_file(report)).findall("*/testcase/failure")
    assert [one.text for one in faults] == [f"again: {command}"]


def test_what_names_cases_or_backends_is_no_part_of_the_options() -> None:
    """The line has a case and a backend of its own, which others would contradict."""
    asked = Request(every=True, ops=("paged",), model="config.json", quick=True, baseline="a.json")
    assert options_of(asked) == ()
    refuse(Request(backends=("TRITON_ATTN",), cases=(CASE,), device="interpret", twice=True))
