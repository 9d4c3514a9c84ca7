"""The display and compute devices on the PCI bus, from sysfs: they are there without any driver."""

from __future__ import annotations

import re

import msgspec

from attnctl.probe.host import Host, HostError, link_target, names_in, read

DEVICES = "/sys/bus/pci/devices"

NVIDIA, AMD, INTEL = "10de", "1002", "8086"

# PCI base classes: 03 display controller, 12 processing accelerator (Instinct, some Gaudi)
_DISPLAY, _ACCELERATOR = 0x03, 0x12
_BUS_ID = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE)
_HEX_16 = re.compile(r"(?:0x)?([0-9a-f]{1,4})", re.IGNORECASE)


class PciDevice(msgspec.Struct, frozen=True):
    """One device. bus_id "0000:17:00.0"; vendor and device in hex; driver None where none is bound.

    problem: why an id or the driver could not be read.
    """

    bus_id: str
    vendor: str
    device: str | None = None
    driver: str | None = None
    problem: str = ""

    @property
    def pci_id(self) -> str | None:
        return None if self.device is None else f"{self.vendor}:{self.device}"

    @property
    def path(self) -> str:
        return f"{DEVICES}/{self.bus_id}"


def scan(host: Host) -> tuple[PciDevice, ...]:
    """The devices of classes 03 and 12, by bus id; none where sysfs has no PCI bus."""
    try:
        names = names_in(host, DEVICES)
    except HostError:
        return ()
    found = (_device(host, name) for name in names)
    return tuple(device for device in found if device is not None)


def of_vendor(devices: tuple[PciDevice, ...], vendor: str) -> tuple[PciDevice, ...]:
    return tuple(device for device in devices if device.vendor == vendor)


def bus_id(text: str | None) -> str | None:
    """A bus id as sysfs writes it ("0000:17:00.0"); None where the text is none.

    NVML pads the domain to eight digits, CUDA and HIP write capitals.
    """
    match = _BUS_ID.fullmatch((text or "").strip())
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def _device(host: Host, name: str) -> PciDevice | None:
    path = f"{DEVICES}/{name}"
    try:
        kind = int(read(host, f"{path}/class").strip(), 16) >> 16
        if kind not in (_DISPLAY, _ACCELERATOR):
            return None
        vendor = _hex_16(read(host, f"{path}/vendor"))
    except (HostError, ValueError):
        return None
    if vendor is None:
        return None
    return _described(host, path, name, vendor)


def _described(host: Host, path: str, name: str, vendor: str) -> PciDevice:
    problems = []
    device = driver = None
    try:
        device = _hex_16(read(host, f"{path}/device"))
    except HostError as error:
        problems.append(f"device: {error.detail}")
    try:
        driver = link_target(host, f"{path}/driver").rstrip("/").rsplit("/", 1)[-1] or None
    except HostError as error:
        # no link is the plain sign of no driver
        if error.kind != "absent":
            problems.append(f"driver: {error.detail}")
    return PciDevice(bus_id(name) or name, vendor, device, driver, "; ".join(problems))


def _hex_16(text: str) -> str | None:
    match = _HEX_16.fullmatch(text.strip())
    return None if match is None else match[1].lower().zfill(4)
