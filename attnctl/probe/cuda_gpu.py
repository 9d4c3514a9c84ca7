"""One NVIDIA GPU, merged from what NVML, the CUDA driver, the kernel module and the PCI bus say."""

from __future__ import annotations

from attnctl.machine import Gpu
from attnctl.probe.arch import CORES_PER_SM, SHARED_MEMORY_BYTES
from attnctl.probe.cuda_memory import bandwidth_of, memory_of
from attnctl.probe.cuda_presence import PROC
from attnctl.probe.cuda_sources import NVML, Sources, cuda_says, nvml_says
from attnctl.probe.host import Host
from attnctl.probe.ledger import Ledger
from attnctl.probe.pci import DEVICES, bus_id
from attnctl.probe.readings import Reading, mapped, settle, told

# CUDA C++ Programming Guide, "Compute Capabilities", feature support: double, half precision
_FIRST_FP64, _FIRST_FP16 = (1, 3), (5, 3)


def merge(host: Host, ledger: Ledger, index: int, sources: Sources) -> Gpu:
    """The GPU, and one fact for each of its leaves under `nvidia.gpus.INDEX`."""
    path = f"nvidia.gpus.{index}"
    capability = _capability(ledger, path, sources)
    mig = _mig(ledger, path, sources)
    memory = memory_of(host, ledger, path, sources)
    return Gpu(
        index=index,
        name=settle(ledger, f"{path}.name", *_texts(sources, "name")),
        arch=_arch(ledger, path, capability),
        capability=capability,
        uuid=settle(ledger, f"{path}.uuid", *_texts(sources, "uuid")),
        pci_id=_pci_id(ledger, path, sources),
        pci_bus_id=_bus_id(ledger, path, sources),
        unit_count=_unit_count(ledger, path, sources, capability),
        warp_size=settle(
            ledger,
            f"{path}.warp_size",
            cuda_says(sources, "warp_size"),
            Reading("CUDA guide", 32, note="every NVIDIA GPU has warps of 32", assumed=True),
        ),
        memory=memory,
        shared_memory_bytes=_shared_memory(ledger, path, sources, capability),
        bandwidth_gbps=bandwidth_of(ledger, path, sources, memory),
        mig=mig,
        nvlink_count=_nvlinks(ledger, path, sources),
        fp64=_arithmetic(ledger, f"{path}.fp64", capability, _FIRST_FP64),
        fp16=_arithmetic(ledger, f"{path}.fp16", capability, _FIRST_FP16),
    )


def _texts(sources: Sources, name: str) -> tuple[Reading[str], ...]:
    kernel: str | None = getattr(sources.kernel, name, None)
    return nvml_says(sources, name), cuda_says(sources, name), Reading(f"{PROC}/gpus", kernel)


def _pci_id(ledger: Ledger, path: str, sources: Sources) -> str | None:
    sysfs = Reading(DEVICES, sources.pci.pci_id if sources.pci else None)
    if sources.tegra and sources.pci is None and sources.nvml is None:
        ledger.missing(
            f"{path}.pci_id", DEVICES, "part of the processor: not on the PCI bus", "absent"
        )
        return None
    return settle(ledger, f"{path}.pci_id", nvml_says(sources, "pci_id"), sysfs)


def _bus_id(ledger: Ledger, path: str, sources: Sources) -> str | None:
    said: list[Reading[str]] = [nvml_says(sources, "bus_id"), cuda_says(sources, "bus_id")]
    readings = [mapped(one, bus_id) for one in said]
    sysfs = Reading(DEVICES, sources.pci.bus_id if sources.pci else None)
    return settle(ledger, f"{path}.pci_bus_id", *readings, sysfs)


def _capability(ledger: Ledger, path: str, sources: Sources) -> tuple[int, int] | None:
    major: Reading[int] = cuda_says(sources, "capability_major")
    minor: Reading[int] = cuda_says(sources, "capability_minor")
    pair = mapped(major, lambda first: None if minor.value is None else (first, minor.value))
    return settle(ledger, f"{path}.capability", nvml_says(sources, "capability"), pair)


def _arch(ledger: Ledger, path: str, capability: tuple[int, int] | None) -> str | None:
    fact = ledger.facts[f"{path}.capability"]
    ledger.facts[f"{path}.arch"] = fact
    return None if capability is None else f"sm_{capability[0]}{capability[1]}"


def _mig(ledger: Ledger, path: str, sources: Sources) -> tuple[str, ...]:
    mode: Reading[int] = nvml_says(sources, "mig_mode")
    if mode.value is None and "NotSupported" in mode.reason:
        ledger.missing(f"{path}.mig", NVML, "this GPU has no MIG", "absent")
        return ()
    if mode.value is None:
        ledger.missing(f"{path}.mig", NVML, mode.reason or "no source says")
        return ()
    ledger.known(f"{path}.mig", NVML)
    instances = sources.nvml.mig if sources.nvml is not None else ()
    return tuple(instance.uuid.value for instance in instances if instance.uuid.value)


def _nvlinks(ledger: Ledger, path: str, sources: Sources) -> int | None:
    links: Reading[int] = nvml_says(sources, "nvlinks")
    if links.value is None and "NotSupported" in links.reason:
        why = "no NVLink, or none that a virtual machine shows"
        ledger.missing(f"{path}.nvlink_count", NVML, why, "absent")
        return None
    return settle(ledger, f"{path}.nvlink_count", links)


def _unit_count(
    ledger: Ledger, path: str, sources: Sources, capability: tuple[int, int] | None
) -> int | None:
    if sources.instance is not None:
        units = told(f"{NVML} (MIG instance)", sources.instance.units)
        return settle(ledger, f"{path}.unit_count", units)
    per_unit = CORES_PER_SM.get(capability) if capability else None
    cores: Reading[int] = nvml_says(sources, "cores")
    count = cores.value // per_unit if cores.value and per_unit else None
    source = f"{NVML} cores / {per_unit} per SM" if per_unit else NVML
    derived = Reading(source, count, cores.reason, timed_out=cores.timed_out)
    return settle(ledger, f"{path}.unit_count", cuda_says(sources, "units"), derived)


def _shared_memory(
    ledger: Ledger, path: str, sources: Sources, capability: tuple[int, int] | None
) -> int | None:
    known = SHARED_MEMORY_BYTES.get(capability) if capability else None
    return settle(
        ledger,
        f"{path}.shared_memory_bytes",
        cuda_says(sources, "shared_memory_optin_bytes"),
        Reading("CUDA guide", known, note="from the compute capability", assumed=True),
        cuda_says(sources, "shared_memory_bytes"),
    )


def _arithmetic(
    ledger: Ledger, path: str, capability: tuple[int, int] | None, first: tuple[int, int]
) -> bool | None:
    supported = None if capability is None else capability >= first
    no, yes = "no compute capability is known", "from the compute capability"
    return settle(ledger, path, Reading("CUDA guide", supported, no, yes, assumed=True))
