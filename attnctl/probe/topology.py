"""Sockets, cores, caches and NUMA nodes, from /proc/cpuinfo and sysfs."""

from __future__ import annotations

from typing import Literal

from attnctl.machine import Cache
from attnctl.probe.cpuinfo import Block, cpu_list, size_bytes
from attnctl.probe.host import Host, HostError, names_in, read
from attnctl.probe.ledger import Ledger

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"

_CACHE_TYPES: dict[str, Literal["data", "instruction", "unified"]] = {
    "Data": "data",
    "Instruction": "instruction",
    "Unified": "unified",
}


def sockets_and_cores(
    host: Host, records: tuple[Block, ...], ledger: Ledger
) -> tuple[int | None, int | None]:
    """(sockets, physical cores); what cannot be had is None with its reason in the ledger."""
    pairs = {(record.get("physical id"), record.get("core id")) for record in records}
    if records and all(socket and core for socket, core in pairs):
        source = "/proc/cpuinfo: physical id, core id"
        sockets, cores = len({socket for socket, _ in pairs}), len(pairs)
    else:
        source = f"{CPUS}/cpu*/topology"
        try:
            sockets, cores = _of_sysfs(host)
        except HostError as error:
            ledger.failed("cpu.sockets", source, error)
            ledger.failed("cpu.cores", source, error)
            return None, None
    reason = "the kernel numbers no sockets"
    return (
        ledger.note("cpu.sockets", source, sockets or None, reason),
        ledger.note("cpu.cores", source, cores or None, "the kernel numbers no cores"),
    )


def _of_sysfs(host: Host) -> tuple[int, int]:
    sockets, cores = set(), set()
    for name in names_in(host, CPUS):
        if not (name.startswith("cpu") and name[3:].isdecimal()):
            continue
        folder = f"{CPUS}/{name}/topology"
        try:
            sockets.add(read(host, f"{folder}/physical_package_id").strip())
            cores.add(read(host, f"{folder}/thread_siblings_list").strip())
        except HostError as error:
            if error.kind != "absent":
                raise
            # an offline processor has no topology
    return len(sockets - {"-1"}), len(cores)


def caches(host: Host, ledger: Ledger) -> tuple[Cache, ...]:
    """The caches that the first processor uses, by level."""
    folder = f"{CPUS}/cpu0/cache"
    try:
        names = [name for name in names_in(host, folder) if name.startswith("index")]
        found = [cache for name in names if (cache := _cache(host, f"{folder}/{name}"))]
    except HostError as error:
        ledger.failed("cpu.caches", folder, error)
        return ()
    found.sort(key=lambda cache: (cache.level, cache.type))
    ledger.note("cpu.caches", folder, found or None, "no cache is described there")
    return tuple(found)


def _cache(host: Host, folder: str) -> Cache | None:
    level = read(host, f"{folder}/level").strip()
    kind = _CACHE_TYPES.get(read(host, f"{folder}/type").strip())
    size = size_bytes(read(host, f"{folder}/size"))
    shared = cpu_list(read(host, f"{folder}/shared_cpu_list"))
    if kind is None or not size or not level.isdecimal() or len(level) > 1:
        return None
    return Cache(int(level), kind, size, len(shared or (0,)))


def numa_nodes(host: Host, ledger: Ledger) -> int | None:
    """How many memory nodes are online."""
    path = f"{NODES}/online"
    return ledger.take(
        "cpu.numa_nodes", path, lambda: len(cpu_list(read(host, path)) or ()) or None
    )
