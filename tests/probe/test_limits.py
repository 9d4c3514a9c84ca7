"""Cores and memory after affinity, cgroup quota and cgroup memory, versions 1 and 2."""

import pytest

from attnctl.probe.host import HostError
from attnctl.probe.ledger import Ledger
from attnctl.probe.limits import probe_limits
from attnctl.probe.tape import Replay

GIB = 1 << 30
MEMINFO = "MemTotal:       67108864 kB\nMemAvailable:   50331648 kB\n"
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def limits(answers, cpus=8):
    ledger = Ledger()
    base = {("affinity",): list(range(cpus)), ("read", "/proc/meminfo"): MEMINFO}
    return probe_limits(Replay.of(base | answers), ledger), ledger


def v2(path, files):
    return {
        ("read", "/proc/self/cgroup"): f"0::{path}\n",
        ("read", "/proc/self/mountinfo"): V2_MOUNT,
        **{("read", f"/sys/fs/cgroup{name}"): text for name, text in files.items()},
    }


def v1(path, files):
    return {
        ("read", "/proc/self/cgroup"): f"4:memory:{path}\n2:cpu,cpuacct:{path}\n0::/\n",
        ("read", "/proc/self/mountinfo"): V1_MOUNTS,
        **{("read", f"/sys/fs/cgroup/{name}"): text for name, text in files.items()},
    }


def test_affinity_alone_limits_the_cores():
    """Without cgroups the answer is what the scheduler allows."""
    found, ledger = limits({}, cpus=3)
    assert (found.usable, found.quota) == (3, None)
    assert found.memory_limit_bytes is None
    assert ledger.facts["cpu.quota"].status == "absent"


def test_the_smallest_quota_of_nested_groups_binds():
    """A pod's group may be wide while the group around it is narrow."""
    found, ledger = limits(
        v2("/kubepods/pod1/app", {
            "/kubepods/pod1/app/cpu.max": "800000 100000\n",
            "/kubepods/pod1/cpu.max": "250000 100000\n",
            "/kubepods/cpu.max": "max 100000\n",
        })
    )  # fmt: skip
    assert (found.quota, found.usable) == (2.5, 2)
    assert ledger.facts["cpu.quota"].source == "/sys/fs/cgroup/kubepods/pod1/cpu.max"


def test_a_quota_below_one_core_leaves_one():
    """Half a core is one thread that waits."""
    found, _ = limits(v2("/", {"/cpu.max": "50000 100000\n"}))
    assert (found.quota, found.usable) == (0.5, 1)


def test_a_quota_above_the_affinity_changes_nothing():
    """The smaller of the two is usable."""
    found, _ = limits(v2("/", {"/cpu.max": "1600000 100000\n"}), cpus=4)
    assert (found.quota, found.usable) == (16.0, 4)


def test_version_1_reads_quota_and_period_apart():
    """Version 1 has a file for each, in the tree of its controller."""
    found, _ = limits(
        v1("/docker/abc", {
            "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "300000\n",
            "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
        })
    )  # fmt: skip
    assert (found.quota, found.usable) == (3.0, 3)


@pytest.mark.parametrize("quota", ["-1\n", "0\n", "", "junk"])
def test_version_1_without_a_quota_has_none(quota):
    """Minus one is how version 1 says that there is no quota."""
    found, _ = limits(
        v1("/", {"cpu,cpuacct/cpu.cfs_quota_us": quota, "cpu,cpuacct/cpu.cfs_period_us": "100000"})
    )
    assert (found.quota, found.usable) == (None, 8)


def test_a_container_sees_its_group_as_the_root_of_the_mount():
    """The path of the host is cut by the root of the bind mount."""
    answers = {
        ("read", "/proc/self/cgroup"): "4:memory:/docker/abc\n",
        ("read", "/proc/self/mountinfo"): (
            "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        ),
        ("read", "/sys/fs/cgroup/memory/memory.limit_in_bytes"): f"{4 * GIB}\n",
    }
    found, _ = limits(answers)
    assert found.memory_limit_bytes == 4 * GIB


def test_what_is_available_counts_the_page_cache_as_free():
    """Limit less usage, with the inactive file pages given back."""
    found, ledger = limits(
        v2("/", {
            "/memory.max": f"{8 * GIB}\n",
            "/memory.current": f"{5 * GIB}\n",
            "/memory.stat": f"anon {3 * GIB}\nfile {2 * GIB}\ninactive_file {GIB}\n",
        })
    )  # fmt: skip
    assert found.memory_total_bytes == 64 * GIB
    assert found.memory_limit_bytes == 8 * GIB
    assert found.memory_available_bytes == 4 * GIB
    assert ledger.facts["cpu.memory_available_bytes"].source == "cgroup limit less cgroup usage"


@pytest.mark.parametrize(
    "answers",
    [
        v2("/", {"/memory.max": "max\n"}),
        v2("/", {"/memory.max": f"{128 * GIB}\n"}),
        v1("/", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}),
        v1("/", {"memory/memory.limit_in_bytes": "18446744073709551615\n"}),
    ],
)
def test_a_limit_that_cannot_bind_is_no_limit(answers):
    """Words, huge values and limits over the machine's memory leave all of it."""
    found, ledger = limits(answers)
    assert found.memory_limit_bytes is None
    assert found.memory_available_bytes == 48 * GIB
    assert ledger.facts["cpu.memory_limit_bytes"].status == "absent"


def test_a_group_outside_of_the_namespace_is_not_followed():
    """A path with dots leads out of the mount: only the root of the mount is asked."""
    found, _ = limits(v2("/../../other", {"/cpu.max": "200000 100000\n"}))
    assert found.quota == 2.0


def test_what_nobody_could_ask_is_unknown():
    """A denied file is not an absent limit."""
    ledger = Ledger()
    denied = HostError("denied", "Permission denied")
    answers = {("affinity",): denied, ("read", "/proc/self/cgroup"): denied}
    found = probe_limits(Replay.of(answers), ledger)
    assert (found.usable, found.quota, found.memory_limit_bytes) == (None, None, None)
    for leaf in ("usable", "quota", "memory_limit_bytes"):
        assert ledger.facts[f"cpu.{leaf}"].status == "unknown"
        assert ledger.facts[f"cpu.{leaf}"].reason == "Permission denied"


def test_what_is_left_is_the_least_of_any_group_around():
    """A pod's sidecar has used up the pod's memory; the container's own limit has plenty left."""
    own = {"memory.max": 4 * GIB, "memory.current": GIB, "memory.stat": "inactive_file 0"}
    pod = {"memory.max": 8 * GIB, "memory.current": 7 * GIB, "memory.stat": "inactive_file 0"}
    files = {f"/pod/app/{name}": f"{text}\n" for name, text in own.items()}
    files |= {f"/pod/{name}": f"{text}\n" for name, text in pod.items()}
    found, _ = limits(v2("/pod/app", files))
    assert found.memory_limit_bytes == 4 * GIB
    assert found.memory_available_bytes == GIB
