"""What a profile is keyed by: the hardware, and the versions that its timings were made with."""

from typing import Annotated, Literal

import msgspec

from attnctl.machine import VENDORS

ANY = "*"
"""A field of the key or a version that a profile leaves open: whatever is found fits it."""
UNKNOWN = "unknown"
"""A version or a field of the key that could not be told: it equals nothing, itself included."""
Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A number of 64 bits: what is larger would overflow where it is divided or shown."""
DeviceKind = Literal["cpu", "gpu"]
_GPU_ARCHS = ("sm_", "gfx", "xe")


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What the hardware is. A CPU has no pci_id; its unit_count is the cores it may use.

    "*" in a field, or leaving out pci_id or unit_count, takes any.
    """

    vendor: str
    arch: str
    pci_id: str | None = None
    unit_count: Whole | Literal["*"] | None = None

    @property
    def kind(self) -> DeviceKind:
        """What kind of device it is.

        Where neither a PCI id nor an architecture tells, GPUs' vendors are written in small letters
        (attnctl.machine.VENDORS), processors' as the kernel has them.
        """
        if self.pci_id not in (None, ANY):
            return "gpu"
        if self.arch not in (ANY, UNKNOWN):
            return "gpu" if self.arch.lower().startswith(_GPU_ARCHS) else "cpu"
        return "gpu" if self.vendor in VENDORS.values() else "cpu"

    def __str__(self) -> str:
        count = self.unit_count
        unit = "units not known" if count is None else f"{'any' if count == ANY else count} units"
        return " ".join(filter(None, (self.vendor, self.arch, self.pci_id))) + f", {unit}"


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """What the timings were made with. None: not asked about; "*": any; "unknown": stale."""

    torch: str | None = None
    triton: str | None = None
    driver: str | None = None
    attnctl: str | None = None
