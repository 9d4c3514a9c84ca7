"""The JUnit file is XML whatever a child said."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from attnctl.smoke.junit import junit_file
from attnctl.smoke.trials import BackendTrials, SmokeReport, Trial


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("signal SIGABRT: \x1b[31mfatal\x1b[0m", "signal SIGABRT: \ufffd[31mfatal\ufffd[0m"),
        ("ValueError: \x00 \ud800 \uffff", "ValueError: \ufffd \ufffd \ufffd"),
        ('a ]]> b & <c d="\'">', 'a ]]> b & <c d="\'">'),
        ("an emoji \U0001f525, caf\xe9", "an emoji \U0001f525, caf\xe9"),
    ],
    ids=["escape", "no characters", "markup", "others"],
)
def test_what_no_xml_may_hold_is_replaced_and_all_else_is_kept(said: str, read: str) -> None:
    """In attributes and texts alike: a backend's name comes from a plug-in."""
    trials = (Trial("paged()", "crashed", 0.1, said), Trial("paged(window=3)", "pass", 0.1))
    report = SmokeReport(backends=(BackendTrials("X\x07", "cpu", "device", trials),), exit_code=1)
    root = fromstring(junit_file(report))
    (fault,) = root.iter("error")
    assert fault.get("message") == read
    assert [one.get("classname") for one in root.iter("testcase")] == ["X\ufffd", "X\ufffd"]
    assert fault.text is not None
    assert "attnctl smoke --backend" in fault.text
