"""The AMD side of a machine: amdsmi if it works, KFD's topology, DRM in sysfs, and HIP."""

from __future__ import annotations

import msgspec

from attnctl.findings import Finding, unknown
from attnctl.machine import Fact, Gpu, Status, Vendor
from attnctl.probe.answers import AmdsmiAnswer, HipAnswer, ask, reason, works
from attnctl.probe.host import Host, HostError
from attnctl.probe.kfd import NODES
from attnctl.probe.ledger import Ledger
from attnctl.probe.pci import DEVICES, PciDevice
from attnctl.probe.readings import Reading, settle, text_in
from attnctl.probe.rocm_findings import (
    KFD_NODE,
    Amdsmi,
    Hip,
    amdsmi_finding,
    hip_finding,
    kfd_finding,
    render_findings,
    undriven,
)
from attnctl.probe.rocm_gpu import merge
from attnctl.probe.rocm_list import Seen, listed, masked, seen_on, usable
from attnctl.probe.rocm_sources import AMDSMI, HIP, Sources

NO_SIGN = "no AMD GPU on the PCI bus, no compute node and no KFD topology"
OSRELEASE = "/proc/sys/kernel/osrelease"
MODULE = "/sys/module/amdgpu/version"
ROCM_VERSION = "/opt/rocm/.info/version"


def probe_amd(
    host: Host, pci: tuple[PciDevice, ...]
) -> tuple[Vendor, dict[str, Fact], tuple[Finding, ...]]:
    """The vendor's share of the machine, the source of each fact, and what is wrong.

    Masks are applied. GPUs that are masked, and GPUs that this process cannot use, are listed and
    not visible. Starts children only where an AMD GPU or the compute node is.
    """
    ledger = Ledger()
    seen = seen_on(host, pci)
    if not seen.anything:
        source = f"{DEVICES}, {KFD_NODE}, {NODES}"
        ledger.missing("amd.gpus", source, NO_SIGN, "absent")
        return Vendor(status="absent", source=source, reason=NO_SIGN), ledger.facts, ()
    amdsmi, hip = _ask(host, seen)
    ledger.findings += _problems(host, seen, amdsmi, hip)
    gpus, open_to_use = _gpus(host, ledger, seen, listed(seen, amdsmi, hip), hip)
    vendor = _vendor(host, ledger, seen, amdsmi, hip, gpus, open_to_use)
    return vendor, ledger.facts, tuple(ledger.findings)


def _ask(host: Host, seen: Seen) -> tuple[Amdsmi, Hip]:
    bound = any(device.driver == "amdgpu" for device in seen.devices)
    amdsmi: Amdsmi = HostError("absent", "not asked: no amdgpu driver and no compute node")
    hip: Hip = HostError("absent", f"not asked: no access to {KFD_NODE}")
    if bound or seen.kfd is not None:
        amdsmi = ask(host, "ask_amdsmi", AmdsmiAnswer)
    if seen.kfd == "rw" or seen.wsl:
        hip = ask(host, "ask_hip", HipAnswer)
    return amdsmi, hip


def _problems(host: Host, seen: Seen, amdsmi: Amdsmi, hip: Hip) -> list[Finding]:
    lists = isinstance(hip, HipAnswer) and bool(hip.gpus)
    blocked = [] if lists else _access_findings(host, seen)
    if blocked:
        return blocked
    found = [None if lists else hip_finding(hip) or _lists_none(seen, hip)]
    if lists or seen.topology.gpus:
        found.append(amdsmi_finding(amdsmi, "KFD topology" if seen.topology.gpus else HIP))
    return [finding for finding in found if finding is not None]


def _access_findings(host: Host, seen: Seen) -> list[Finding]:
    """No driver, no compute node, no render node: the first that is missing explains the rest."""
    driven = seen.topology.gpus or any(device.driver == "amdgpu" for device in seen.devices)
    if not driven and seen.kfd is None:
        return undriven(seen.devices)
    blocked = None if seen.wsl else kfd_finding(seen.kfd)
    if blocked is not None:
        return [blocked]
    if seen.topology.there and not seen.topology.gpus and not seen.topology.denied:
        return []  # the compute driver runs and has no GPU: the render nodes are another vendor's
    minors = [gpu.render_minor for gpu in seen.topology.gpus if gpu.render_minor is not None]
    return [] if seen.wsl else render_findings(host, minors)


def _lists_none(seen: Seen, hip: Hip) -> Finding | None:
    if not works(hip) or not seen.topology.gpus:
        return None
    return unknown(
        "amd.hip_lists_none",
        "HIP lists the GPUs that the kernel driver lists",
        f"KFD lists {len(seen.topology.gpus)} and HIP none",
        HIP,
        "compare the ROCm of libamdhip64 with the GPU: rocminfo says which agents it refuses",
    )


def _gpus(
    host: Host, ledger: Ledger, seen: Seen, sources: list[Sources], hip: Hip
) -> tuple[tuple[Gpu, ...], bool]:
    """Every GPU, with the masks applied, and whether any can be used at all."""
    able = [at for at, one in enumerate(sources) if usable(host, ledger, at, one, seen, hip)]
    visible = masked(host, [sources[at] for at in able])
    ledger.findings += visible.findings
    numbers = {able[entry.physical]: number for number, entry in enumerate(visible.entries)}
    gpus = []
    for at, one in enumerate(sources):
        number = numbers.get(at)
        gpu = merge(host, ledger, at, one)
        gpus.append(msgspec.structs.replace(gpu, visible=number is not None, logical_index=number))
        if at in able and number is None:
            ledger.missing(f"amd.gpus.{at}.visible", visible.source, "masked", "absent")
    return tuple(gpus), bool(able)


def _vendor(
    host: Host,
    ledger: Ledger,
    seen: Seen,
    amdsmi: Amdsmi,
    hip: Hip,
    gpus: tuple[Gpu, ...],
    open_to_use: bool,
) -> Vendor:
    status, why = _status(ledger, hip, gpus, open_to_use)
    return Vendor(
        status=status,
        source=_source(seen, hip, amdsmi),
        reason=why,
        driver=_driver(host, ledger, amdsmi),
        runtime=_runtime(host, ledger, hip),
        gpus=gpus,
    )


def _source(seen: Seen, hip: Hip, amdsmi: Amdsmi) -> str:
    """Every source that described a GPU."""
    told = {
        NODES: bool(seen.topology.gpus),
        HIP: isinstance(hip, HipAnswer) and bool(hip.gpus),
        AMDSMI: isinstance(amdsmi, AmdsmiAnswer) and bool(amdsmi.gpus),
    }
    return ", ".join(name for name, spoke in told.items() if spoke) or f"{DEVICES}, {KFD_NODE}"


def _status(
    ledger: Ledger, hip: Hip, gpus: tuple[Gpu, ...], open_to_use: bool
) -> tuple[Status, str]:
    if open_to_use:
        return "ok", ""
    why = ledger.findings[0].found if ledger.findings else "no GPU is listed"
    if isinstance(hip, HostError) and hip.kind == "timeout":
        return "timeout", why
    if not gpus and works(hip) and not ledger.findings:
        return "absent", why
    return "unknown", why


def _driver(host: Host, ledger: Ledger, amdsmi: Amdsmi) -> str | None:
    """The version of the amdgpu package; the kernel's own driver has the kernel's version."""
    named = amdsmi.driver if isinstance(amdsmi, AmdsmiAnswer) else None
    kernel = text_in(host, OSRELEASE)
    in_tree = f"kernel {kernel.value}" if kernel.value else None
    return settle(
        ledger,
        "amd.driver",
        text_in(host, MODULE),
        Reading(AMDSMI, named.value if named else None, reason(amdsmi)),
        Reading(OSRELEASE, in_tree, kernel.reason),
    )


def _runtime(host: Host, ledger: Ledger, hip: Hip) -> str | None:
    """The ROCm version: 6.4.1. HIP's own number, 60443484, has no patch level: 6.4."""
    installed = text_in(host, ROCM_VERSION)
    version = installed.value.partition("-")[0] if installed.value else None
    number = hip.version.value if isinstance(hip, HipAnswer) else None
    told = f"{number // 10_000_000}.{number // 100_000 % 100}" if number else None
    return settle(
        ledger,
        "amd.runtime",
        Reading(installed.source, version, installed.reason),
        Reading(HIP, told, reason(hip)),
    )
