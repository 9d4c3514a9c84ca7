"""Puts the parts of the probe together: each is guarded, timed, and cannot take the others down."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from attnctl.findings import Finding, unknown
from attnctl.machine import Cpu, Fact, Machine, Package, Vendor
from attnctl.probe import compatibility, pci
from attnctl.probe.bounds import in_bounds
from attnctl.probe.cpu import probe_cpu
from attnctl.probe.host import Host, HostError, access, exists
from attnctl.probe.ledger import Ledger
from attnctl.probe.limits import Limits, probe_limits
from attnctl.probe.packages import probe_packages, unknown_packages
from attnctl.probe.realhost import RealHost
from attnctl.probe.site import Site
from attnctl.probe.system import probe_system
from attnctl.probe.tape import Recorder
from attnctl.probe.toolchain import Toolchain, probe_toolchain

T = TypeVar("T")
VendorAnswer = tuple[Vendor, dict[str, Fact], tuple[Finding, ...]]
Scan = tuple[pci.PciDevice, ...]

# paths that only a machine with this vendor's GPU or driver has; /dev/dxg is any GPU under WSL
_SIGNS = {
    "nvidia": (
        "/dev/nvidiactl",
        "/sys/module/nvidia",
        "/proc/driver/nvidia",
        "/dev/nvhost-gpu",
        "/dev/nvgpu",
        "/proc/device-tree/compatible",
        "/dev/dxg",
    ),
    "amd": ("/dev/kfd", "/sys/class/kfd", "/sys/module/amdgpu", "/dev/dxg"),
    "intel": ("/sys/module/xe", "/sys/module/i915", "/dev/dxg"),
}
_PCI_VENDORS = {"nvidia": pci.NVIDIA, "amd": pci.AMD, "intel": pci.INTEL}


class Parts:
    """Runs the parts one after the other. What a part raises becomes a finding."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.timings_ms: dict[str, float] = {}

    def run(self, name: str, default: T, question: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return question()
        except Exception as error:  # a strange machine is data, whatever it does to a part
            self._broken(name, error)
            return default
        finally:
            self.timings_ms[name] = round((time.perf_counter() - started) * 1000, 2)

    def _broken(self, name: str, error: Exception) -> None:
        kind = f"{error.kind}: " if isinstance(error, HostError) else f"{type(error).__name__}: "
        text = kind + (str(error) or "no text")
        self.ledger.missing(name, "probe", text)
        self.ledger.findings.append(
            unknown(
                "probe.internal",
                f"the part {name} of the probe comes to its end",
                text,
                name,
                "save a tape with attnctl probe --record FILE, and report it",
            )
        )


def assemble(host: Host) -> Machine:
    """The machine that a host describes."""
    parts = Parts()
    cpu = parts.run("cpu", Cpu(status="unknown"), lambda: probe_cpu(host, parts.ledger))
    limits = parts.run("limits", Limits(), lambda: probe_limits(host, parts.ledger))
    cpu = msgspec.structs.replace(cpu, **msgspec.structs.asdict(limits))
    no_system: dict[str, str] = {}
    system = parts.run("os", no_system, lambda: probe_system(host, parts.ledger))
    no_devices: Scan = ()
    devices = parts.run("pci", no_devices, lambda: pci.scan(host))
    vendors = {name: _vendor(host, name, devices, parts) for name in _SIGNS}
    packages, tools = _software(host, vendors, parts)
    live = _is_live(host)
    machine = Machine(
        name=_name(vendors, cpu),
        origin="probed" if live else "replayed",
        nvidia=vendors["nvidia"],
        amd=vendors["amd"],
        intel=vendors["intel"],
        cpu=cpu,
        os={**system, **tools},
        packages=packages,
        facts=dict(sorted(parts.ledger.facts.items())),
        findings=tuple(dict.fromkeys(parts.ledger.findings)),
        timings_ms=parts.timings_ms if live else {},
    )
    return in_bounds(machine)


def _is_live(host: Host) -> bool:
    return isinstance(host, RealHost) or (isinstance(host, Recorder) and _is_live(host.host))


def _vendor(host: Host, name: str, devices: Scan, parts: Parts) -> Vendor:
    """One vendor's GPUs; its code is loaded only where something of that vendor is there."""
    broken = Vendor(status="unknown", source="probe", reason="the probe failed: see the findings")
    return parts.run(name, broken, lambda: _asked(host, name, devices, parts.ledger))


def _asked(host: Host, name: str, devices: Scan, ledger: Ledger) -> Vendor:
    on_bus = bool(pci.of_vendor(devices, _PCI_VENDORS[name]))
    if not on_bus and not any(exists(host, path) for path in _SIGNS[name]):
        source = f"{pci.DEVICES}, {', '.join(_SIGNS[name])}"
        hidden = _hidden(host, (pci.DEVICES, *_SIGNS[name]))
        if hidden:
            reason = f"no sign of one, but {hidden}"
            ledger.missing(f"{name}.gpus", source, reason)
            return Vendor(status="unknown", source=source, reason=reason)
        reason = "no GPU on the PCI bus and no sign of a driver"
        ledger.missing(f"{name}.gpus", source, reason, "absent")
        return Vendor(status="absent", source=source, reason=reason)
    vendor, facts, findings = _ask_vendor(host, name, devices)
    ledger.facts.update(facts)
    ledger.findings += findings
    return vendor


def _hidden(host: Host, paths: tuple[str, ...]) -> str:
    """The first of these that could not be asked about, and why; "" where none is there."""
    for path in paths:
        try:
            access(host, path)
        except HostError as error:
            if error.kind not in ("absent", "unrecorded"):
                return f"{path}: {error.detail}"
    return ""


def _ask_vendor(host: Host, name: str, devices: Scan) -> VendorAnswer:
    if name == "nvidia":
        from attnctl.probe.cuda import probe_nvidia

        return probe_nvidia(host, devices)
    if name == "amd":
        from attnctl.probe.rocm import probe_amd

        return probe_amd(host, devices)
    from attnctl.probe.xpu import probe_intel

    return probe_intel(host, devices)


def _software(
    host: Host, vendors: dict[str, Vendor], parts: Parts
) -> tuple[dict[str, Package], dict[str, str]]:
    """(packages, what of the toolchain goes beside the facts of the system)."""
    ledger = parts.ledger
    failed = HostError("failed", "the probe failed: see the findings")
    site, packages = parts.run("packages", None, lambda: _installed(host, ledger)) or (
        None,
        unknown_packages(failed, ledger),
    )
    folder = site.module("triton") if site and packages["triton"].status == "ok" else None
    gpus = compatibility.visible(vendors)
    tools = parts.run("toolchain", Toolchain(), lambda: probe_toolchain(host, ledger, folder, gpus))
    headers = {True: "present", False: "absent", None: None}[tools.python_headers]
    named = {"c_compiler": tools.cc, "cuda_home": tools.cuda_home, "python_headers": headers}
    beside = {name: value for name, value in named.items() if value}
    if site is None:
        return packages, beside
    packages = parts.run(
        "compatibility",
        packages,
        lambda: compatibility.fitted(packages, site, vendors, tools, ledger),
    )
    return packages, beside


def _installed(host: Host, ledger: Ledger) -> tuple[Site | None, dict[str, Package]]:
    try:
        site = Site(host)
    except HostError as error:
        return None, unknown_packages(error, ledger)
    return site, probe_packages(site, ledger)


def _name(vendors: dict[str, Vendor], cpu: Cpu) -> str:
    """What the machine is, for a heading: never the name of the host."""
    names = [gpu.name or gpu.arch or "GPU" for gpu in compatibility.visible(vendors)]
    if names:
        counts = {name: names.count(name) for name in names}
        return " + ".join(name if n == 1 else f"{n} x {name}" for name, n in counts.items())
    return cpu.model or cpu.microarchitecture or cpu.arch or "unknown machine"
