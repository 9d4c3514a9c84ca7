"""The system around the process: containers and WSL."""

import pytest

from attnctl.probe.ledger import Ledger
from attnctl.probe.system import container_of, probe_system, wsl_version
from attnctl.probe.tape import Replay


@pytest.mark.parametrize(
    ("answers", "container"),
    [
        ({("access", "/.dockerenv"): ""}, "docker"),
        ({("access", "/run/.containerenv"): "r"}, "podman"),
        ({("env", "KUBERNETES_SERVICE_HOST"): "10.0.0.1"}, "kubernetes"),
        ({("env", "container"): "lxc"}, "lxc"),
        ({("read", "/proc/1/cgroup"): "0::/kubepods/besteffort/pod1\n"}, "kubernetes"),
        ({("read", "/proc/self/cgroup"): "4:memory:/docker/abc\n"}, "docker"),
        ({("read", "/proc/self/cgroup"): "0::/user.slice\n"}, None),
        ({}, None),
    ],
)
def test_a_container_is_known_by_what_its_engine_leaves(answers, container):
    """Files, variables and cgroup paths, whichever is there."""
    assert container_of(Replay.of(answers))[0] == container


@pytest.mark.parametrize(
    ("kernel", "version"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", "2"),
        ("4.4.0-19041-Microsoft", "1"),
        ("6.6.87.2-microsoft-standard", "2"),
        ("6.8.0-60-generic", None),
        ("", None),
    ],
)
def test_wsl_is_known_by_the_release_of_its_kernel(kernel, version):
    """Version 1 has a kernel that calls itself 4.4."""
    assert wsl_version(kernel) == version


def test_each_fact_of_the_system_has_a_source_or_a_reason():
    """On a machine that answers nothing, every fact says why it is missing."""
    ledger = Ledger()
    assert probe_system(Replay.of({}), ledger) == {}
    assert {fact.status for fact in ledger.facts.values()} == {"absent"}
    assert all(fact.reason and fact.source for fact in ledger.facts.values())
