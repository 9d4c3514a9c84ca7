"""The NVIDIA side of a machine: NVML, then the CUDA driver, then the kernel and the PCI bus."""

from __future__ import annotations

import msgspec

from attnctl.findings import Finding
from attnctl.machine import Fact, Gpu, Status, Vendor
from attnctl.probe.answers import CudaAnswer, CudaGpu, NvmlAnswer, NvmlGpu, ask, reason, works
from attnctl.probe.cuda_findings import (
    Cuda,
    Nvml,
    gpu_findings,
    library_findings,
    no_driver,
)
from attnctl.probe.cuda_gpu import merge
from attnctl.probe.cuda_list import cuda_order, listed, masked, usable
from attnctl.probe.cuda_presence import CONTROL_NODE, Presence, presence
from attnctl.probe.cuda_sources import CUDA, NVML, Sources
from attnctl.probe.host import Host, HostError
from attnctl.probe.ledger import Ledger
from attnctl.probe.pci import DEVICES, PciDevice, bus_id
from attnctl.probe.readings import Reading, settle
from attnctl.probe.visibility import Visible

NO_SIGN = "no NVIDIA driver, no NVIDIA GPU on the PCI bus and no device node"


def probe_nvidia(
    host: Host, pci: tuple[PciDevice, ...]
) -> tuple[Vendor, dict[str, Fact], tuple[Finding, ...]]:
    """The vendor's share of the machine, the source of each fact, and what is wrong.

    Masks are applied. GPUs that are masked, and GPUs on which no kernel can run now (no driver,
    CUDA does not start), are listed and not visible. Starts children only where some driver is.
    """
    ledger = Ledger()
    seen = presence(host, pci)
    if not seen.anything:
        source = f"{DEVICES}, {CONTROL_NODE}"
        ledger.missing("nvidia.gpus", source, NO_SIGN, "absent")
        return Vendor(status="absent", source=source, reason=NO_SIGN), ledger.facts, ()
    nvml, cuda = _ask(host, seen)
    ledger.findings += _problems(seen, nvml, cuda)
    gpus, open_to_use = _gpus(host, ledger, seen, nvml, cuda)
    vendor = _vendor(ledger, seen, nvml, cuda, gpus, open_to_use)
    return vendor, ledger.facts, tuple(ledger.findings)


def _problems(seen: Presence, nvml: Nvml, cuda: Cuda) -> list[Finding]:
    told = {bus_id(gpu.bus_id.value) for gpu in _listed_by(nvml) + _listed_by(cuda)}
    undriven = no_driver(tuple(device for device in seen.devices if device.bus_id not in told))
    if not seen.askable:
        return undriven
    if works(nvml) and not told and not seen.devices:
        return []  # a driver on a machine without GPUs: an image that is used for both
    # beside GPUs that work, one that is set aside for a virtual machine is no problem
    odd = [finding for finding in undriven if not told or "vfio" not in finding.found]
    return odd + library_findings(seen, nvml, cuda) + gpu_findings(nvml)


def _listed_by(answer: Nvml | Cuda) -> list[NvmlGpu | CudaGpu]:
    return [] if isinstance(answer, HostError) else list(answer.gpus)


def _ask(host: Host, seen: Presence) -> tuple[Nvml, Cuda]:
    if not seen.askable:
        error = HostError("absent", "not asked: no NVIDIA driver")
        return error, error
    return ask(host, "ask_nvml", NvmlAnswer), ask(host, "ask_cuda", CudaAnswer)


def _gpus(
    host: Host, ledger: Ledger, seen: Presence, nvml: Nvml, cuda: Cuda
) -> tuple[tuple[Gpu, ...], bool]:
    """Every GPU, with the masks applied, and whether any can be used at all."""
    sources = listed(seen, nvml, cuda)
    able = [at for at, gpu in enumerate(sources) if usable(ledger, at, gpu, nvml, cuda)]
    # masks count in CUDA's own order, which is not always NVML's
    able.sort(key=lambda at: cuda_order(cuda, sources[at]))
    visible = masked(host, [sources[at] for at in able])
    ledger.findings += visible.findings
    gpus = []
    for at, one in enumerate(sources):
        number, part = _place(visible, able.index(at) if at in able else None)
        gpu = merge(host, ledger, at, _with_instance(one, part))
        gpus.append(msgspec.structs.replace(gpu, visible=number is not None, logical_index=number))
        if at in able and number is None:
            ledger.missing(f"nvidia.gpus.{at}.visible", visible.source, "masked", "absent")
    return tuple(gpus), bool(able)


def _place(visible: Visible, position: int | None) -> tuple[int | None, str]:
    """The logical number of a usable GPU, and the MIG instance that the mask picks, if any."""
    for number, entry in enumerate(visible.entries):
        if entry.physical == position:
            return number, entry.part
    return None, ""


def _with_instance(sources: Sources, part: str) -> Sources:
    instances = sources.nvml.mig if sources.nvml is not None else ()
    picked = next((i for i in instances if part and i.uuid.value == part), sources.instance)
    return msgspec.structs.replace(sources, instance=picked)


def _vendor(
    ledger: Ledger,
    seen: Presence,
    nvml: Nvml,
    cuda: Cuda,
    gpus: tuple[Gpu, ...],
    open_to_use: bool,
) -> Vendor:
    status, why = _status(ledger, nvml, cuda, gpus, open_to_use)
    return Vendor(
        status=status,
        source=", ".join(n for n, a in ((NVML, nvml), (CUDA, cuda)) if works(a)) or DEVICES,
        reason=why,
        driver=_driver(ledger, seen, nvml),
        runtime=_runtime(ledger, nvml, cuda),
        gpus=gpus,
    )


def _status(
    ledger: Ledger, nvml: Nvml, cuda: Cuda, gpus: tuple[Gpu, ...], open_to_use: bool
) -> tuple[Status, str]:
    if open_to_use:
        return "ok", ""
    why = ledger.findings[0].found if ledger.findings else "no GPU is listed"
    kinds = {answer.kind for answer in (nvml, cuda) if isinstance(answer, HostError)}
    if "timeout" in kinds:
        return "timeout", why
    # a driver with no GPU in the machine: everything was asked, and there is none
    return ("absent", why) if works(nvml) and not gpus else ("unknown", why)


def _driver(ledger: Ledger, seen: Presence, nvml: Nvml) -> str | None:
    module = Reading(seen.module_source, seen.module, seen.module_reason)
    named = nvml.driver if isinstance(nvml, NvmlAnswer) else None
    told = Reading(
        NVML, named.value if named else None, reason(nvml) or (named.error if named else "")
    )
    return settle(ledger, "nvidia.driver", told, module)


def _runtime(ledger: Ledger, nvml: Nvml, cuda: Cuda) -> str | None:
    """The CUDA version that the driver takes: 13020 is "13.2"."""
    readings = []
    for source, answer in ((NVML, nvml), (CUDA, cuda)):
        field = None
        if isinstance(answer, NvmlAnswer):
            field = answer.cuda
        elif isinstance(answer, CudaAnswer):
            field = answer.version
        number = field.value if field else None
        version = f"{number // 1000}.{number % 1000 // 10}" if number else None
        readings.append(Reading(source, version, reason(answer) or (field.error if field else "")))
    return settle(ledger, "nvidia.runtime", *readings)
