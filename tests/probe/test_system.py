"""The system around the process: containers, WSL, and who may open a device node."""

import pytest

from attnctl.probe.host import HostError
from attnctl.probe.ledger import Ledger
from attnctl.probe.system import container_of, node_finding, probe_system, wsl_version
from attnctl.probe.tape import Replay

NODE = {
    ("access", "/dev/kfd"): "",
    ("stat", "/dev/kfd"): {"mode": 0o660, "uid": 0, "gid": 109},
    ("ids",): {"uid": 1000, "gid": 1000, "groups": [27, 1000]},
    ("read", "/etc/group"): "root:x:0:\nrender:x:109:alice\n",
}


def finding(answers):
    return node_finding(Replay.of(NODE | answers), "/dev/kfd", "node.kfd")


def test_a_node_of_a_group_that_one_is_not_in_names_the_group():
    """The fix is the one command that adds the user to it."""
    found = finding({})
    assert found.found == "/dev/kfd is there but you are not in group render"
    assert found.fix == "sudo usermod -aG render $USER, then log in again"


def test_in_a_container_the_number_of_the_group_counts():
    """Names of groups differ between host and image; --group-add takes the number."""
    assert (
        finding({("access", "/.dockerenv"): "r"}).fix == "start the container with --group-add 109"
    )


def test_a_member_who_is_refused_is_told_so():
    """Membership is right and access still fails: in a container the device is not passed in."""
    member = {("ids",): {"uid": 0, "gid": 0, "groups": [109]}, ("access", "/.dockerenv"): "r"}
    found = finding(member)
    assert "you are in its group render" in found.found
    assert found.fix == "start the container with --device /dev/kfd"


@pytest.mark.parametrize(
    "answer", ["rw", HostError("absent", "No such file or directory")], ids=["open", "absent"]
)
def test_a_node_that_works_or_is_not_there_is_no_finding(answer):
    """Nothing is said about what works."""
    assert finding({("access", "/dev/kfd"): answer}) is None


def test_a_group_without_a_name_is_its_number():
    """An image without the group in /etc/group still gets a finding."""
    found = finding({("read", "/etc/group"): HostError("absent", "gone")})
    assert found.found == "/dev/kfd is there but you are not in group 109"


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
