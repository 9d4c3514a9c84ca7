"""Signs of an NVIDIA GPU or driver that cost no library call, so that a CPU box starts no child."""

from __future__ import annotations

import re

import msgspec

from attnctl.probe.host import Host, HostError, access, exists, names_in, read
from attnctl.probe.pci import NVIDIA, PciDevice, bus_id, of_vendor

CONTROL_NODE = "/dev/nvidiactl"
MODULE = "/sys/module/nvidia/version"
PROC = "/proc/driver/nvidia"
# the GPU of Windows in a WSL guest, and where Windows puts the driver's libraries
WSL_NODE = "/dev/dxg"
WSL_LIBRARIES = ("/usr/lib/wsl/lib/libcuda.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
DEVICE_TREE = "/proc/device-tree/compatible"
TEGRA_NODES = ("/dev/nvhost-gpu", "/dev/nvgpu/igpu0/ctrl")

_VERSION = re.compile(r"\s(\d{3,4}\.\d+(?:\.\d+)?)\s")


class KernelGpu(msgspec.Struct, frozen=True):
    """What the kernel module says of one GPU; it knows the name even where no library works."""

    bus_id: str
    name: str | None = None
    uuid: str | None = None


class Presence(msgspec.Struct, frozen=True):
    """control: what this process may do with the control node, None where there is none.

    module: version of the loaded kernel module, and module_source where it was read.
    """

    devices: tuple[PciDevice, ...] = ()
    control: str | None = None
    module: str | None = None
    module_source: str = MODULE
    module_reason: str = ""
    kernel_gpus: tuple[KernelGpu, ...] = ()
    wsl: bool = False
    tegra: bool = False

    @property
    def askable(self) -> bool:
        """Whether a library could answer: some driver is there."""
        bound = any(device.driver == "nvidia" for device in self.devices)
        return self.control is not None or bool(self.module) or bound or self.wsl or self.tegra

    @property
    def anything(self) -> bool:
        return self.askable or bool(self.devices)


def presence(host: Host, pci: tuple[PciDevice, ...]) -> Presence:
    """Every sign there is; nothing is opened and no library is loaded."""
    module, source, reason = _module(host)
    return Presence(
        devices=of_vendor(pci, NVIDIA),
        control=_control(host),
        module=module,
        module_source=source,
        module_reason=reason,
        kernel_gpus=_kernel_gpus(host) if module else (),
        wsl=exists(host, WSL_NODE) and any(exists(host, path) for path in WSL_LIBRARIES),
        tegra=_tegra(host),
    )


def _control(host: Host) -> str | None:
    try:
        return access(host, CONTROL_NODE)
    except HostError:
        return None


def _module(host: Host) -> tuple[str | None, str, str]:
    try:
        return read(host, MODULE).strip() or None, MODULE, "empty file"
    except HostError as error:
        reason = error.detail
    try:
        match = _VERSION.search(read(host, f"{PROC}/version"))
    except HostError:
        return None, MODULE, reason
    return (match[1] if match else None), f"{PROC}/version", "no version in it"


def _kernel_gpus(host: Host) -> tuple[KernelGpu, ...]:
    try:
        names = names_in(host, f"{PROC}/gpus")
    except HostError:
        return ()
    return tuple(_kernel_gpu(host, name) for name in names if bus_id(name))


def _kernel_gpu(host: Host, name: str) -> KernelGpu:
    try:
        lines = read(host, f"{PROC}/gpus/{name}/information").splitlines()
    except HostError:
        lines = []
    facts = {key.strip(): rest.strip() for key, _, rest in (line.partition(":") for line in lines)}
    uuid = facts.get("GPU UUID", "")
    # a GPU that the module has not started yet has question marks for digits
    known = uuid if uuid and "?" not in uuid else None
    return KernelGpu(bus_id(name) or name, facts.get("Model") or None, known)


def _tegra(host: Host) -> bool:
    try:
        if "nvidia,tegra" in read(host, DEVICE_TREE):
            return True
    except HostError:
        pass
    return any(exists(host, node) for node in TEGRA_NODES)
