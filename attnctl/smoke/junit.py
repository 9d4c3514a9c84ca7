"""Smoke's result as JUnit XML: one suite per backend, one test case per case."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, tostring

from attnctl.smoke.again import again
from attnctl.smoke.trials import BackendTrials, SmokeReport, Timing, Trial

_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KINDS = {"wrong": "failure", "error": "error", "crashed": "error", "timeout": "error"}


def junit_file(report: SmokeReport) -> bytes:
    """The bytes of the XML document."""
    root = junit(report)
    for element in root.iter():
        element.text = element.text and _fit(element.text)
        for name, value in element.items():
            element.set(name, _fit(value))
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _fit(text: str) -> str:
    """The text without what no XML document may hold, as a crashed child's last line may be."""
    return _UNFIT.sub("\ufffd", text)


def junit(report: SmokeReport) -> Element:
    root = Element("testsuites", name="attnctl smoke")
    for backend in report.backends:
        root.append(_suite(report, backend))
    return root


def _suite(report: SmokeReport, backend: BackendTrials) -> Element:
    suite = Element(
        "testsuite",
        name=backend.backend,
        tests=str(len(backend.trials)),
        failures=str(backend.count("wrong")),
        errors=str(backend.count("error", "crashed", "timeout")),
        skipped=str(backend.count("unsupported", "unknown")),
        time=f"{sum(trial.seconds for trial in backend.trials):.3f}",
    )
    suite.extend(_case(report, backend, trial) for trial in backend.trials)
    return suite


def _case(report: SmokeReport, backend: BackendTrials, trial: Trial) -> Element:
    seconds = f"{trial.seconds:.3f}"
    element = Element("testcase", classname=backend.backend, name=trial.case, time=seconds)
    if trial.timing is not None:
        element.append(_times(trial.timing))
    if trial.status in _KINDS:
        kind = _KINDS[trial.status]
        fault = SubElement(element, kind, message=trial.detail, type=trial.status)
        fault.text = f"again: {again(report, backend, trial)}"
    elif trial.status != "pass":
        reasons = "; ".join(f"{r.code}: wants {r.wanted}, found {r.found}" for r in trial.reasons)
        SubElement(element, "skipped", message=f"{trial.status}: {reasons}")
    return element


def _times(timing: Timing) -> Element:
    """A property for each figure, by the name that --json gives it."""
    found = Element("properties")
    for name in timing.__struct_fields__:
        value = getattr(timing, name)
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        SubElement(found, "property", name=name, value=text)
    return found
