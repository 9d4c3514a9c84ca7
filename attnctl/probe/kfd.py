"""AMD GPUs as the kernel's compute driver (KFD) lists them in sysfs: no library, no device node.

Properties: drivers/gpu/drm/amd/amdkfd/kfd_topology.c and kfd_topology.h of Linux.
"""

from __future__ import annotations

import msgspec

from attnctl.probe.arch import gfx_name
from attnctl.probe.host import Host, HostError, names_in, read

NODES = "/sys/class/kfd/kfd/topology/nodes"

# HSA_MEM_HEAP_TYPE_FB_PUBLIC and _PRIVATE: memory on the card
_CARD_HEAPS = (1, 2)
# HSA_CAP_SRAM_EDCSUPPORTED, the bit behind the feature sramecc
_SRAM_ECC = 0x0400_0000


class KfdGpu(msgspec.Struct, frozen=True):
    """One GPU node: a whole GPU, a die (MI250X has two), or a partition (MI300X in CPX mode).

    memory_*: of the memory on the card; clock in MHz, width in bits; None where it has none.
    """

    node: str
    gfx: str
    unit_count: int | None
    warp_size: int | None
    lds_bytes: int | None
    bus_id: str | None
    pci_id: str | None
    uuid: str | None
    render_minor: int | None
    sram_ecc: bool
    memory_bytes: int | None = None
    memory_width_bits: int | None = None
    memory_clock_mhz: int | None = None

    @property
    def source(self) -> str:
        return f"{NODES}/{self.node}"


class Topology(msgspec.Struct, frozen=True):
    """reason: why there is no topology at all. denied: nodes that this process may not read."""

    gpus: tuple[KfdGpu, ...] = ()
    denied: tuple[str, ...] = ()
    reason: str = ""

    @property
    def there(self) -> bool:
        return not self.reason


def topology(host: Host) -> Topology:
    """The GPU nodes in KFD's order, which is HIP's."""
    try:
        nodes = sorted(names_in(host, NODES), key=lambda name: (len(name), name))
    except HostError as error:
        return Topology(reason=error.detail)
    gpus, denied = [], []
    for node in nodes:
        try:
            properties = _properties(read(host, f"{NODES}/{node}/properties"))
        except HostError as error:
            # a container that was not given a GPU may see its node and not its properties
            if error.kind == "denied":
                denied.append(node)
            continue
        gpu = _gpu(node, properties)
        if gpu is not None:
            gpus.append(_with_memory(host, gpu))
    return Topology(tuple(gpus), tuple(denied))


def _gpu(node: str, properties: dict[str, int]) -> KfdGpu | None:
    gfx = gfx_name(properties.get("gfx_target_version", 0))
    if gfx is None:
        return None
    simds, per_unit = properties.get("simd_count", 0), properties.get("simd_per_cu", 0)
    unique = properties.get("unique_id", 0)
    lds_kib = properties.get("lds_size_in_kb", 0)
    return KfdGpu(
        node=node,
        gfx=gfx,
        unit_count=simds // per_unit if simds and per_unit else None,
        warp_size=properties.get("wave_front_size") or None,
        lds_bytes=lds_kib * 1024 if 0 < lds_kib < 1 << 20 else None,
        bus_id=_bus_id(properties),
        pci_id=_pci_id(properties),
        uuid=f"GPU-{unique:016x}" if unique else None,
        render_minor=properties.get("drm_render_minor") or None,
        sram_ecc=bool(properties.get("capability", 0) & _SRAM_ECC),
    )


def _with_memory(host: Host, gpu: KfdGpu) -> KfdGpu:
    banks = f"{gpu.source}/mem_banks"
    try:
        names = names_in(host, banks)
    except HostError:
        return gpu
    card = []
    for name in names:
        try:
            bank = _properties(read(host, f"{banks}/{name}/properties"))
        except HostError:
            continue
        if bank.get("heap_type") in _CARD_HEAPS and bank.get("size_in_bytes"):
            card.append(bank)
    if not card:
        return gpu
    return msgspec.structs.replace(
        gpu,
        memory_bytes=sum(bank["size_in_bytes"] for bank in card),
        memory_width_bits=card[0].get("width") or None,
        memory_clock_mhz=card[0].get("mem_clk_max") or None,
    )


def _properties(text: str) -> dict[str, int]:
    """The "name number" lines of a properties file; lines of any other form are passed over."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        # unique_id and hive_id have all 64 bits
        if len(words) == 2 and words[1].isascii() and words[1].isdecimal() and len(words[1]) < 21:
            found[words[0]] = int(words[1]) & 0xFFFF_FFFF_FFFF_FFFF
    return {name: value for name, value in found.items() if name == "unique_id" or value < 1 << 63}


def _bus_id(properties: dict[str, int]) -> str | None:
    """From bus and device alone: the function's bits, or the highest, hold a partition's number."""
    location, domain = properties.get("location_id"), properties.get("domain", 0)
    if not location or domain >= 1 << 32:
        return None
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0"


def _pci_id(properties: dict[str, int]) -> str | None:
    vendor, device = properties.get("vendor_id", 0), properties.get("device_id", 0)
    return f"{vendor:04x}:{device:04x}" if 0 < vendor < 1 << 16 and device < 1 << 16 else None
