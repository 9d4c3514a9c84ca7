"""A machine as plain facts: what the probe found, what a bundled what-if file states.

Every value is frozen and goes to JSON and back unchanged. A value of None means that the fact is
not known; `Machine.facts` says where each fact came from, or why it could not be had.
Units are in the names; bandwidth is in 10^9 bytes per second.
"""

from typing import Literal

import msgspec

from attnctl.findings import Finding

SCHEMA = "attnctl.machine/1"

Platform = Literal["cuda", "rocm", "xpu", "cpu"]
Status = Literal["ok", "absent", "unknown", "timeout", "assumed"]


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a fact came from; `reason` says why it is missing, where it is."""

    status: Status
    source: str
    reason: str = ""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["discrete", "unified", "mig", "unknown"] = "unknown"
    total_bytes: int | None = None
    free_bytes: int | None = None


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator of any vendor.

    arch: "sm_90", "gfx942", "xe2-hpg": the name that compilers use, without feature suffixes.
    capability: (major, minor), NVIDIA only.
    unit_count: streaming multiprocessors, compute units or Xe cores.
    shared_memory_bytes: most that one block may have (opt-in limit), or the LDS of a work-group.
    pci_id: "vendor:device" in hex ("10de:2335"); pci_bus_id: "0000:17:00.0".
    visible / logical_index: after the visibility masks of the environment.
    """

    index: int
    name: str | None = None
    arch: str | None = None
    capability: tuple[int, int] | None = None
    features: tuple[str, ...] = ()
    uuid: str | None = None
    pci_id: str | None = None
    pci_bus_id: str | None = None
    unit_count: int | None = None
    eu_count: int | None = None
    warp_size: int | None = None
    memory: Memory = Memory()
    shared_memory_bytes: int | None = None
    bandwidth_gbps: float | None = None
    mig: tuple[str, ...] = ()
    nvlink_count: int | None = None
    fp64: bool | None = None
    fp16: bool | None = None
    visible: bool = True
    logical_index: int | None = None


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """One vendor's share of the machine.

    status: "ok" (GPUs usable), "absent" (none there), "unknown" (something is there and could not
    be asked: see the findings). driver: kernel driver version. runtime: the CUDA version that the
    driver takes, the ROCm version, or the Level Zero version.
    """

    status: Status = "unknown"
    source: str = ""
    reason: str = ""
    driver: str | None = None
    runtime: str | None = None
    gpus: tuple[Gpu, ...] = ()


class Cache(msgspec.Struct, frozen=True):
    level: int
    type: Literal["data", "instruction", "unified"]
    size_bytes: int
    shared_by: int = 1


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """The processor as this process may use it.

    isa: features that are usable (compiled code may use them); isa_unusable: advertised but not
    usable, each with the reason. usable: cores after affinity and cgroup quota.
    """

    status: Status = "ok"
    source: str = ""
    arch: str | None = None
    vendor: str | None = None
    model: str | None = None
    microarchitecture: str | None = None
    isa_level: str | None = None
    isa: tuple[str, ...] = ()
    isa_unusable: dict[str, str] = {}
    sve_bits: int | None = None
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    usable: int | None = None
    quota: float | None = None
    numa_nodes: int | None = None
    caches: tuple[Cache, ...] = ()
    memory_total_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_available_bytes: int | None = None
    bandwidth_gbps: float | None = None


class Package(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of software, found without importing it.

    build: facts of its build that matter ({"cuda": "13.0"}, {"hip": "7.2"}). usable: None where
    nothing showed the contrary; False with a reason where it is installed and cannot run here.
    """

    status: Status
    source: str
    version: str | None = None
    build: dict[str, str] = {}
    usable: bool | None = None
    reason: str = ""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that selection may know of a machine.

    timings_ms: how long each part of a live probe took; empty for files and replays.
    """

    schema: str = SCHEMA
    name: str
    origin: Literal["probed", "replayed", "bundled", "file"] = "file"
    sources: tuple[str, ...] = ()
    nvidia: Vendor = Vendor()
    amd: Vendor = Vendor()
    intel: Vendor = Vendor()
    cpu: Cpu
    os: dict[str, str] = {}
    packages: dict[str, Package] = {}
    usual_packages: dict[str, str] = {}
    facts: dict[str, Fact] = {}
    findings: tuple[Finding, ...] = ()
    timings_ms: dict[str, float] = {}

    @property
    def platform(self) -> Platform:
        return platform_of(self)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Visible GPUs of the platform in use, in logical order."""
        return visible_gpus(self)


def platform_of(machine: Machine) -> Platform:
    if any(g.visible for g in machine.nvidia.gpus):
        return "cuda"
    if any(g.visible for g in machine.amd.gpus):
        return "rocm"
    if any(g.visible for g in machine.intel.gpus):
        return "xpu"
    return "cpu"


VENDORS = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel"}
"""Platform -> the name of its vendor's share of a Machine."""


def vendor_of(machine: Machine) -> Vendor | None:
    """The share of the vendor whose GPUs are in use; None on a CPU."""
    name = VENDORS.get(machine.platform)
    vendor: Vendor | None = getattr(machine, name) if name else None
    return vendor


def visible_gpus(machine: Machine) -> tuple[Gpu, ...]:
    vendor = vendor_of(machine)
    seen = [gpu for gpu in vendor.gpus if gpu.visible] if vendor else []
    return tuple(sorted(seen, key=_logical))


def _logical(gpu: Gpu) -> int:
    return gpu.index if gpu.logical_index is None else gpu.logical_index
