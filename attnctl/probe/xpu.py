"""The Intel side of a machine: Level Zero, the files of the driver, and the PCI bus."""

from __future__ import annotations

import msgspec

from attnctl.findings import Finding
from attnctl.machine import Fact, Gpu, Status, Vendor
from attnctl.probe.answers import ZeAnswer, ZeGpu, ask, reason, silence, works
from attnctl.probe.drm import render_node
from attnctl.probe.host import Host, HostError, env, exists
from attnctl.probe.ledger import Ledger
from attnctl.probe.pci import DEVICES, INTEL, PciDevice, bus_id, of_vendor
from attnctl.probe.readings import Reading, settle, text_in
from attnctl.probe.visibility import INTEL_NAMES, Visible, intel_visible
from attnctl.probe.xpu_findings import (
    DRIVERS,
    LEVEL_ZERO,
    Ze,
    device_finding,
    level_zero_finding,
    unlisted,
)
from attnctl.probe.xpu_gpu import Sources, merge

NO_SIGN = "no Intel GPU on the PCI bus"
OSRELEASE = "/proc/sys/kernel/osrelease"
LOADER = "/usr/lib/x86_64-linux-gnu/libze_loader.so.1"


def probe_intel(
    host: Host, pci: tuple[PciDevice, ...]
) -> tuple[Vendor, dict[str, Fact], tuple[Finding, ...]]:
    """The vendor's share of the machine, the source of each fact, and what is wrong.

    Masks are applied. GPUs that are masked, and GPUs that Level Zero does not list, are listed and
    not visible. Starts a child only where a GPU is that PyTorch's XPU build could use.
    """
    ledger = Ledger()
    devices = of_vendor(pci, INTEL)
    wsl = exists(host, "/dev/dxg") and exists(host, LOADER)
    if not devices and not wsl:
        ledger.missing("intel.gpus", DEVICES, NO_SIGN, "absent")
        return Vendor(status="absent", source=DEVICES, reason=NO_SIGN), ledger.facts, ()
    sources = [Sources(pci=device, node=render_node(host, device)) for device in devices]
    ze = _ask(host, sources, wsl)
    ledger.findings += _problems(sources, ze)
    gpus, open_to_use = _gpus(host, ledger, _joined(sources, ze))
    vendor = Vendor(
        status=_status(ze, open_to_use),
        source=LEVEL_ZERO if works(ze) else DEVICES,
        reason="" if open_to_use else _why(ledger, gpus),
        driver=_driver(host, ledger, devices),
        runtime=_runtime(ledger, ze),
        gpus=gpus,
    )
    return vendor, ledger.facts, tuple(ledger.findings)


def _able(sources: Sources) -> bool:
    """Whether PyTorch could use such a GPU; an id that the table lacks is asked about too."""
    return sources.generation is None or sources.generation.compute


def _ask(host: Host, sources: list[Sources], wsl: bool) -> Ze:
    open_nodes = [one for one in sources if _able(one) and one.node.access == "rw"]
    if open_nodes or wsl:
        return ask(host, "ask_level_zero", ZeAnswer)
    return HostError("absent", "not asked: no Intel GPU that PyTorch supports and may be opened")


def _problems(sources: list[Sources], ze: Ze) -> list[Finding]:
    """Of GPUs that PyTorch could use only: graphics of a desktop processor need no advice."""
    known = [one for one in sources if one.generation is not None and one.generation.compute]
    blocked = [device_finding(one.pci, one.node) for one in known if one.pci is not None]
    found = [finding for finding in blocked if finding is not None]
    if len(found) < len(known):
        told = level_zero_finding(ze)
        found += [told] if told is not None else []
    if works(ze):
        there = {bus_id(gpu.bus_id.value) for gpu in _ze_gpus(ze)}
        clear = [
            one.pci for one, bad in zip(known, blocked, strict=True) if bad is None and one.pci
        ]
        if None not in there:
            found += [unlisted(device) for device in clear if device.bus_id not in there]
    return found


def _ze_gpus(ze: Ze) -> tuple[ZeGpu, ...]:
    return ze.gpus if isinstance(ze, ZeAnswer) else ()


def _joined(sources: list[Sources], ze: Ze) -> list[Sources]:
    """Level Zero's GPUs in its order, each with its PCI device, then devices that it does not list.

    Where tiles are devices of their own, several GPUs have one PCI device.
    """
    joined, used = [], set()
    for gpu in _ze_gpus(ze):
        partner = _partner(gpu, sources)
        if partner is not None:
            used.add(id(partner))
        joined.append(msgspec.structs.replace(partner or Sources(), ze=gpu))
    why = silence(ze)
    rest = [one for one in sources if id(one) not in used]
    return joined + [msgspec.structs.replace(one, ze_silence=why) for one in rest]


def _partner(gpu: ZeGpu, sources: list[Sources]) -> Sources | None:
    bus = bus_id(gpu.bus_id.value)
    for one in sources:
        if bus is not None and one.pci is not None and one.pci.bus_id == bus:
            return one
    if bus is not None:
        return None
    # loaders before 1.5 tell no bus id
    return next((one for one in sources if one.pci_id == gpu.pci_id.value), None)


def _gpus(host: Host, ledger: Ledger, sources: list[Sources]) -> tuple[tuple[Gpu, ...], bool]:
    """Every GPU, with the masks applied, and whether any can be used at all."""
    able = [at for at, one in enumerate(sources) if one.ze is not None]
    visible = _masked(host, [sources[at] for at in able])
    ledger.findings += visible.findings
    numbers: dict[int, int] = {}
    for number, entry in enumerate(visible.entries):
        numbers.setdefault(able[entry.physical], number)
    gpus = []
    for at, one in enumerate(sources):
        logical = numbers.get(at)
        gpu = merge(host, ledger, at, one)
        shown = msgspec.structs.replace(gpu, visible=logical is not None, logical_index=logical)
        gpus.append(shown)
        source = visible.source if at in able and logical is None else LEVEL_ZERO
        ledger.note(f"intel.gpus.{at}.visible", source, logical, _hidden(one))
    return tuple(gpus), bool(able)


def _hidden(sources: Sources) -> str:
    """Why a GPU is not visible."""
    if sources.ze is not None:
        return "masked"
    if sources.generation is not None and not sources.generation.compute:
        return "PyTorch's XPU build does not support this generation"
    return sources.ze_silence.reason


def _masked(host: Host, able: list[Sources]) -> Visible:
    environment = {}
    for name in INTEL_NAMES:
        try:
            environment[name] = env(host, name)
        except HostError:
            environment[name] = None
    tiles = [(one.ze.tiles.value if one.ze else None) or 1 for one in able]
    return intel_visible(environment, [min(count, 64) for count in tiles])


def _status(ze: Ze, open_to_use: bool) -> Status:
    if open_to_use:
        return "ok"
    return "timeout" if isinstance(ze, HostError) and ze.kind == "timeout" else "unknown"


def _why(ledger: Ledger, gpus: tuple[Gpu, ...]) -> str:
    if ledger.findings:
        return ledger.findings[0].found
    facts = [ledger.facts.get(f"intel.gpus.{gpu.index}.visible") for gpu in gpus]
    return next((fact.reason for fact in facts if fact is not None and fact.reason), "")


def _driver(host: Host, ledger: Ledger, devices: tuple[PciDevice, ...]) -> str | None:
    """Both drivers come with the kernel and have its version: "xe, kernel 6.12.9"."""
    names = dict.fromkeys(device.driver for device in devices if device.driver in DRIVERS)
    kernel = text_in(host, OSRELEASE)
    version = f", kernel {kernel.value}" if kernel.value else ""
    named = ", ".join(str(name) for name in names)
    return settle(
        ledger,
        "intel.driver",
        Reading(f"{DEVICES}, {OSRELEASE}", f"{named}{version}" if named else None, "none is bound"),
    )


def _runtime(ledger: Ledger, ze: Ze) -> str | None:
    version = ze.version if isinstance(ze, ZeAnswer) else None
    why = reason(ze) or (version.error if version else "")
    return settle(
        ledger, "intel.runtime", Reading(LEVEL_ZERO, version.value if version else None, why)
    )
