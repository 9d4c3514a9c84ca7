"""What each source says of one AMD GPU, and why it says nothing where it does not."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from attnctl.probe.answers import AmdsmiGpu, Field, HipGpu, Silence
from attnctl.probe.kfd import KfdGpu
from attnctl.probe.pci import DEVICES, PciDevice, bus_id
from attnctl.probe.readings import Reading, told, untold

T = TypeVar("T")

AMDSMI, HIP = "amdsmi", "HIP"


class Sources(msgspec.Struct, frozen=True):
    """The parts of the answers that are about one GPU. A silence says why a part is missing."""

    kfd: KfdGpu | None = None
    kfd_silence: Silence = Silence()
    amdsmi: AmdsmiGpu | None = None
    amdsmi_silence: Silence = Silence()
    hip: HipGpu | None = None
    hip_silence: Silence = Silence()
    pci: PciDevice | None = None

    @property
    def bus_id(self) -> str | None:
        if self.kfd is not None and self.kfd.bus_id is not None:
            return self.kfd.bus_id
        for gpu in (self.amdsmi, self.hip):
            if gpu is not None and bus_id(gpu.bus_id.value) is not None:
                return bus_id(gpu.bus_id.value)
        return self.pci.bus_id if self.pci else None

    @property
    def folder(self) -> str:
        """The device's folder in sysfs."""
        return f"{DEVICES}/{self.bus_id}"


def target_of(sources: Sources) -> str | None:
    """The compiler's target without its features."""
    hip = sources.hip.gfx.value if sources.hip else None
    amdsmi = sources.amdsmi.gfx.value if sources.amdsmi else None
    kfd = sources.kfd.gfx if sources.kfd else None
    return kfd or plain(amdsmi) or plain(hip)


def plain(gfx: str | None) -> str | None:
    return gfx.partition(":")[0] if gfx else None


def kfd_says(sources: Sources, name: str) -> Reading[T]:
    if sources.kfd is None:
        return untold("KFD topology", sources.kfd_silence)
    value: T | None = getattr(sources.kfd, name)
    return Reading(sources.kfd.source, value)


def sysfs_says(sources: Sources, name: str) -> Reading[T]:
    value: T | None = getattr(sources.pci, name, None)
    return Reading(DEVICES, value)


def amdsmi_says(sources: Sources, name: str) -> Reading[T]:
    if sources.amdsmi is None:
        return untold(AMDSMI, sources.amdsmi_silence)
    field: Field[T] = getattr(sources.amdsmi, name)
    return told(AMDSMI, field)


def hip_says(sources: Sources, name: str) -> Reading[T]:
    if sources.hip is None:
        return untold(HIP, sources.hip_silence)
    field: Field[T] = getattr(sources.hip, name)
    return told(HIP, field)
