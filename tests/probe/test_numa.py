"""Whether memory may be bound to NUMA nodes: asked where there are several."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.codes import meaning
from attnctl.findings import Verdict
from attnctl.probe import probe
from attnctl.probe.host import HostError
from attnctl.probe.numa import CODE, numa_findings
from attnctl.probe.realhost import RealHost
from attnctl.probe.tape import Replay

DENIED = HostError("denied", "Operation not permitted")


def host(answer: Any, nodes: str = "0-1") -> Replay:
    return Replay.of({("numa_policy",): answer, ("read", "/sys/devices/system/node/online"): nodes})


def test_a_filter_that_forbids_it_is_a_finding_with_the_fix() -> None:
    """On a machine of two nodes, in the probe's answer and in words that explain."""
    (found,) = (one for one in probe(host(DENIED)).findings if one.code == CODE)
    assert found.verdict is Verdict.UNMET
    assert found.found.startswith("get_mempolicy: Operation not permitted")
    assert found.fix == "docker run --cap-add SYS_NICE"
    assert meaning(CODE) is not None


@pytest.mark.parametrize("nodes", ["0", ""])
def test_one_node_raises_no_question(nodes: str) -> None:
    """There is nothing to bind to."""
    assert CODE not in {one.code for one in probe(host(DENIED, nodes)).findings}


@pytest.mark.parametrize("kind", ["absent", "failed", "unrecorded"])
def test_who_could_not_ask_warns_of_nothing(kind: str) -> None:
    """A kernel without NUMA, an old tape."""
    assert numa_findings(host(HostError(kind, "no")), 2) == ()
    assert numa_findings(host(True), 2) == ()


def test_this_machine_answers_or_refuses() -> None:
    """The number of the system call is right: nothing else comes of it."""
    try:
        answer = RealHost().ask("numa_policy")
    except HostError as error:
        answer = error.kind
    assert answer in (True, "denied", "failed")
