"""What this process may use of the machine: affinity, cgroup quota, cgroup memory (v1 and v2)."""

from __future__ import annotations

import msgspec

from attnctl.probe.host import Host, HostError, affinity, read
from attnctl.probe.ledger import Ledger

MEMINFO = "/proc/meminfo"
SELF_CGROUP = "/proc/self/cgroup"
MOUNTINFO = "/proc/self/mountinfo"

# v1 writes "no limit" as the largest multiple of the page size; nothing real comes near this
NO_LIMIT_BYTES = 1 << 60


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """usable: whole cores after affinity and quota; quota: cores per wall second, None for none."""

    usable: int | None = None
    quota: float | None = None
    memory_total_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_available_bytes: int | None = None


class Group(msgspec.Struct, frozen=True):
    """One cgroup folder that binds this process; version 1 or 2."""

    version: int
    folder: str


def probe_limits(host: Host, ledger: Ledger) -> Limits:
    """Cores and memory after every limit that applies."""
    quota = _quota(host, ledger)
    memory = _memory(host, ledger)
    return msgspec.structs.replace(memory, quota=quota, usable=_usable(host, quota, ledger))


def groups(host: Host, controller: str) -> tuple[Group, ...]:
    """The folders of this process's cgroup for a controller, from itself up to the root.

    A limit on any of them binds. A container sees its own group as the root of the mount, so a
    path that is not there is looked for from its end upwards.
    """
    version, path = _membership(host, controller)
    mount, root = _mount(host, controller, version)
    if root != "/" and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    parts = [part for part in path.split("/") if part]
    if ".." in parts:  # the process was moved out of its namespace's root
        parts = []
    folders = ["/".join((mount, *parts[:depth])) for depth in range(len(parts), -1, -1)]
    return tuple(Group(version, folder) for folder in folders)


def _membership(host: Host, controller: str) -> tuple[int, str]:
    """(version, path) of the group; version 1 wins where the controller is mounted there."""
    path = None
    for line in read(host, SELF_CGROUP).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if controller in controllers.split(","):
            return 1, name
        if number == "0" and not controllers:
            path = name
    if path is None:
        raise HostError("absent", f"this process is in no cgroup for {controller}")
    return 2, path


def _mount(host: Host, controller: str, version: int) -> tuple[str, str]:
    """(mount point, the group that it shows as its root) of a controller's tree."""
    usual = f"/sys/fs/cgroup/{controller}" if version == 1 else "/sys/fs/cgroup"
    try:
        lines = read(host, MOUNTINFO).splitlines()
    except HostError:
        return usual, "/"
    for line in lines:
        left, dash, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if not dash or len(fields) < 5 or len(kind) < 3:
            continue
        if version == 2 and kind[0] == "cgroup2":
            return fields[4], fields[3]
        if version == 1 and kind[0] == "cgroup" and controller in kind[2].split(","):
            return fields[4], fields[3]
    return usual, "/"


def _quota(host: Host, ledger: Ledger) -> float | None:
    """The smallest quota on the way up, in cores."""
    try:
        found = [(quota, source) for quota, source in _quotas(host) if quota is not None]
    except HostError as error:
        ledger.failed("cpu.quota", SELF_CGROUP, error)
        return None
    if not found:
        ledger.missing("cpu.quota", SELF_CGROUP, "no quota on the way up", "absent")
        return None
    quota, source = min(found)
    ledger.known("cpu.quota", source)
    return quota


def _quotas(host: Host) -> list[tuple[float | None, str]]:
    found = []
    for group in groups(host, "cpu"):
        try:
            if group.version == 2:
                source = f"{group.folder}/cpu.max"
                words = read(host, source).split()
            else:
                source = f"{group.folder}/cpu.cfs_quota_us"
                words = [read(host, source), read(host, f"{group.folder}/cpu.cfs_period_us")]
        except HostError:
            continue  # the root group has no such file, a container does not see its parents
        found.append((_ratio(words), source))
    return found


def _ratio(words: list[str]) -> float | None:
    """Quota over period; None for "max", -1 and whatever is no number."""
    numbers = [_count(word) for word in words]
    if len(numbers) < 2 or not numbers[0] or not numbers[1]:
        return None
    return numbers[0] / numbers[1]


def _usable(host: Host, quota: float | None, ledger: Ledger) -> int | None:
    """Whole cores: a thread beyond the quota only waits at the others' barriers."""
    try:
        allowed = len(affinity(host))
    except HostError as error:
        ledger.failed("cpu.usable", "sched_getaffinity", error)
        return None
    source = "sched_getaffinity"
    if quota is not None:
        source += " and the cgroup quota"
        allowed = max(1, min(allowed, int(quota)))
    return ledger.note("cpu.usable", source, allowed or None, "no processor is allowed")


def _memory(host: Host, ledger: Ledger) -> Limits:
    """Total, limit and available memory; a limit at or over the total is none."""
    try:
        info = _meminfo(read(host, MEMINFO))
    except HostError as error:
        for leaf in ("total", "available"):
            ledger.failed(f"cpu.memory_{leaf}_bytes", MEMINFO, error)
        info = {}
    else:
        for key, leaf in (("MemTotal", "total"), ("MemAvailable", "available")):
            path = f"cpu.memory_{leaf}_bytes"
            ledger.note(path, f"{MEMINFO}: {key}", info.get(key), f"there is no {key}")
    total = info.get("MemTotal")
    limit, left = _memory_limit(host, total, ledger)
    available = info.get("MemAvailable")
    if left is not None and (available is None or left < available):
        available = left
        ledger.known("cpu.memory_available_bytes", "cgroup limit less cgroup usage")
    return Limits(
        memory_total_bytes=total, memory_limit_bytes=limit, memory_available_bytes=available
    )


def _memory_limit(host: Host, total: int | None, ledger: Ledger) -> tuple[int | None, int | None]:
    """(smallest limit on the way up, the least that is left under any of them)."""
    path = "cpu.memory_limit_bytes"
    try:
        found = _memory_limits(host)
    except HostError as error:
        ledger.failed(path, SELF_CGROUP, error)
        return None, None
    found = [entry for entry in found if entry[0] < (total or NO_LIMIT_BYTES)]
    if not found:
        reason = "no limit below the machine's memory on the way up"
        ledger.missing(path, SELF_CGROUP, reason, "absent")
        return None, None
    limit, group = min(found, key=lambda entry: entry[0])
    ledger.known(path, f"{group.folder}/{_MEMORY_FILES[group.version][0]}")
    # what a group above has left may be less: its other members use it up
    used = [(size, _memory_used(host, one)) for size, one in found]
    left = [max(0, size - taken) for size, taken in used if taken is not None]
    return limit, min(left, default=None)


# limit, usage, and the key in memory.stat of the page cache that the kernel gives back when asked
_MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def _memory_limits(host: Host) -> list[tuple[int, Group]]:
    found = []
    for group in groups(host, "memory"):
        try:
            limit = _count(read(host, f"{group.folder}/{_MEMORY_FILES[group.version][0]}"))
        except HostError:
            continue
        if limit and limit < NO_LIMIT_BYTES:
            found.append((limit, group))
    return found


def _memory_used(host: Host, group: Group) -> int | None:
    """Bytes that the group holds and would not give back."""
    _, usage_file, cache_key = _MEMORY_FILES[group.version]
    try:
        usage = _count(read(host, f"{group.folder}/{usage_file}"))
        stat = read(host, f"{group.folder}/memory.stat")
    except HostError:
        return None
    if usage is None:
        return None
    pairs = dict(line.split(" ", 1) for line in stat.splitlines() if " " in line)
    return usage - (_count(pairs.get(cache_key, "")) or 0)


def _meminfo(text: str) -> dict[str, int]:
    """The entries of /proc/meminfo, in bytes."""
    found = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        number = _count(value.strip().removesuffix(" kB"))
        if number is not None:
            found[key.strip()] = number * 1024
    return found


def _count(text: str) -> int | None:
    """A number of at most 19 digits; None for "max", -1 and damage."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
