"""One AMD GPU, merged from what amdsmi, KFD, DRM and HIP say of it."""

from __future__ import annotations

from attnctl.machine import Gpu
from attnctl.probe.arch import counts_work_group_processors
from attnctl.probe.host import Host
from attnctl.probe.ledger import Ledger
from attnctl.probe.pci import bus_id
from attnctl.probe.readings import Reading, mapped, settle, text_in
from attnctl.probe.rocm_memory import bandwidth_of, is_apu, memory_of
from attnctl.probe.rocm_sources import (
    HIP,
    Sources,
    amdsmi_says,
    hip_says,
    kfd_says,
    plain,
    sysfs_says,
)


def merge(host: Host, ledger: Ledger, index: int, sources: Sources) -> Gpu:
    """The GPU, and one fact for each of its leaves under `amd.gpus.INDEX`."""
    path = f"amd.gpus.{index}"
    arch = _arch(ledger, path, sources)
    pci_id = settle(
        ledger, f"{path}.pci_id", kfd_says(sources, "pci_id"), sysfs_says(sources, "pci_id")
    )
    memory = memory_of(host, ledger, path, sources, is_apu(sources, arch, pci_id))
    return Gpu(
        index=index,
        name=_name(host, ledger, path, sources),
        arch=arch,
        features=_features(ledger, path, sources),
        uuid=settle(ledger, f"{path}.uuid", kfd_says(sources, "uuid"), hip_says(sources, "uuid")),
        pci_id=pci_id,
        pci_bus_id=_bus_id(ledger, path, sources),
        unit_count=_unit_count(ledger, path, sources, arch),
        warp_size=settle(
            ledger,
            f"{path}.warp_size",
            kfd_says(sources, "warp_size"),
            hip_says(sources, "warp_size"),
        ),
        memory=memory,
        shared_memory_bytes=settle(
            ledger,
            f"{path}.shared_memory_bytes",
            kfd_says(sources, "lds_bytes"),
            hip_says(sources, "shared_memory_bytes"),
        ),
        bandwidth_gbps=bandwidth_of(ledger, path, sources, arch, memory),
        fp64=_arithmetic(ledger, f"{path}.fp64", arch),
        fp16=_arithmetic(ledger, f"{path}.fp16", arch),
    )


def _arch(ledger: Ledger, path: str, sources: Sources) -> str | None:
    amdsmi: Reading[str] = amdsmi_says(sources, "gfx")
    hip: Reading[str] = hip_says(sources, "gfx")
    return settle(
        ledger,
        f"{path}.arch",
        kfd_says(sources, "gfx"),
        mapped(amdsmi, plain),
        mapped(hip, plain),
    )


def _features(ledger: Ledger, path: str, sources: Sources) -> tuple[str, ...]:
    """Target features as HIP writes them ("sramecc+", "xnack-"); KFD knows the first alone."""
    hip: Reading[str] = hip_says(sources, "gfx")
    named = mapped(hip, lambda gfx: tuple(gfx.split(":")[1:]))
    only = "of the features, KFD tells sramecc alone"
    ecc: tuple[str, ...] | None = None
    if sources.kfd is not None and sources.kfd.sram_ecc:
        ecc = ("sramecc+",)
    kfd = Reading(kfd_says(sources, "gfx").source, ecc, only, only)
    return settle(ledger, f"{path}.features", named, kfd) or ()


def _name(host: Host, ledger: Ledger, path: str, sources: Sources) -> str | None:
    product = text_in(host, f"{sources.folder}/product_name") if sources.bus_id else None
    readings: list[Reading[str]] = [amdsmi_says(sources, "name")]
    if product is not None:
        readings.append(product)
    return settle(ledger, f"{path}.name", *readings, hip_says(sources, "name"))


def _bus_id(ledger: Ledger, path: str, sources: Sources) -> str | None:
    said: list[Reading[str]] = [amdsmi_says(sources, "bus_id"), hip_says(sources, "bus_id")]
    readings = [mapped(one, bus_id) for one in said]
    kfd: Reading[str] = kfd_says(sources, "bus_id")
    return settle(ledger, f"{path}.pci_bus_id", kfd, *readings, sysfs_says(sources, "bus_id"))


def _unit_count(ledger: Ledger, path: str, sources: Sources, arch: str | None) -> int | None:
    hip: Reading[int] = hip_says(sources, "multiprocessors")
    if hip.value is not None and arch and counts_work_group_processors(arch):
        note = "doubled: on RDNA, HIP counts pairs of compute units"
        hip = Reading(HIP, hip.value * 2, note=note)
    return settle(
        ledger,
        f"{path}.unit_count",
        kfd_says(sources, "unit_count"),
        amdsmi_says(sources, "units"),
        hip,
    )


def _arithmetic(ledger: Ledger, path: str, arch: str | None) -> bool | None:
    no, yes = "no target is known", "every target that ROCm compiles for has it"
    known = Reading("AMD ISA guides", True if arch else None, no, yes, assumed=True)
    return settle(ledger, path, known)
