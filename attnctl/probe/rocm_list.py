"""Which AMD GPUs there are, which of them this process can use, and which the masks leave."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from attnctl.probe.answers import (
    AmdsmiAnswer,
    AmdsmiGpu,
    HipAnswer,
    HipGpu,
    Silence,
    reason,
    silence,
    works,
)
from attnctl.probe.drm import DRI, node_access
from attnctl.probe.host import Host, HostError, env, exists
from attnctl.probe.kfd import Topology, topology
from attnctl.probe.ledger import Ledger
from attnctl.probe.pci import AMD, PciDevice, bus_id, of_vendor
from attnctl.probe.rocm_findings import KFD_NODE, Amdsmi, Hip
from attnctl.probe.rocm_sources import AMDSMI, HIP, Sources, target_of
from attnctl.probe.visibility import AMD_NAMES, Visible, amd_visible

G = TypeVar("G", AmdsmiGpu, HipGpu)

# graphics for a desktop inside a processor: ROCm has never supported these, so they count only
# where HIP itself lists them
_DISPLAY_ONLY = frozenset(
    {"gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037"}
)
# failures of the HIP child that leave open whether the copy of HIP inside PyTorch would work
_OPEN = ("absent", "timeout", "unrecorded", "garbled")


class Seen(msgspec.Struct, frozen=True):
    """Signs that cost no library call. kfd: access to the compute node, None where it is not."""

    devices: tuple[PciDevice, ...]
    kfd: str | None
    topology: Topology
    wsl: bool

    @property
    def anything(self) -> bool:
        """Whether a GPU may be there: a compute driver that lists none has none."""
        listed = self.topology.gpus or self.topology.denied or self.devices
        return bool(listed) or self.wsl or (self.kfd is not None and not self.topology.there)


def seen_on(host: Host, pci: tuple[PciDevice, ...]) -> Seen:
    # ROCm under WSL reaches the GPU through the node that all vendors share there
    wsl = exists(host, "/dev/dxg") and exists(host, "/opt/rocm/lib/libamdhip64.so")
    return Seen(of_vendor(pci, AMD), node_access(host, KFD_NODE), topology(host), wsl)


def listed(seen: Seen, amdsmi: Amdsmi, hip: Hip) -> list[Sources]:
    """One entry per GPU, from the best list that there is: KFD's, HIP's, amdsmi's, the bus's."""
    smi_gpus = amdsmi.gpus if isinstance(amdsmi, AmdsmiAnswer) else ()
    hip_gpus = hip.gpus if isinstance(hip, HipAnswer) else ()
    buses = _buses(seen, smi_gpus, hip_gpus)
    entries = []
    for at, bus in enumerate(buses):
        # partitions of one card share its bus id: they are told apart by their order
        nth = buses[:at].count(bus)
        entries.append(
            Sources(
                kfd=seen.topology.gpus[at] if seen.topology.gpus else None,
                kfd_silence=Silence(seen.topology.reason or "no GPU in it"),
                amdsmi=_nth_at(smi_gpus, bus, nth),
                amdsmi_silence=silence(amdsmi),
                hip=_nth_at(hip_gpus, bus, nth),
                hip_silence=silence(hip),
                pci=next((device for device in seen.devices if device.bus_id == bus), None),
            )
        )
    return entries


def usable(host: Host, ledger: Ledger, index: int, sources: Sources, seen: Seen, hip: Hip) -> bool:
    """Whether kernels could run on a GPU, as far as can be known; the fact says how it is known."""
    path = f"amd.gpus.{index}.visible"
    if works(hip):
        told = "HIP lists it" if sources.hip else "not in HIP's list of GPUs"
        ledger.note(path, HIP, sources.hip, told)
        return sources.hip is not None
    if seen.kfd != "rw" and not seen.wsl:
        ledger.missing(path, KFD_NODE, "no read and write access", "absent")
        return False
    if sources.kfd is not None and sources.kfd.render_minor is not None:
        node = f"{DRI}/renderD{sources.kfd.render_minor}"
        if node_access(host, node) != "rw":
            ledger.missing(path, node, "no read and write access", "absent")
            return False
    if not isinstance(hip, HostError) or hip.kind not in _OPEN:
        ledger.missing(path, HIP, reason(hip), "absent")
        return False
    return _by_lists(ledger, path, sources, hip)


def masked(host: Host, able: list[Sources]) -> Visible:
    """What the masks leave of the GPUs that can be used, which stand in HIP's order."""
    environment = {}
    for name in AMD_NAMES:
        try:
            environment[name] = env(host, name)
        except HostError:
            environment[name] = None
    uuids = []
    for sources in able:
        kfd = sources.kfd.uuid if sources.kfd else None
        uuids.append(kfd or (sources.hip.uuid.value if sources.hip else None))
    return amd_visible(environment, uuids)


def _by_lists(ledger: Ledger, path: str, sources: Sources, hip: HostError) -> bool:
    """Without HIP's word: a GPU that the compute driver lists and this process may open."""
    if target_of(sources) in _DISPLAY_ONLY:
        ledger.missing(path, "target", "ROCm does not support this kind of GPU", "absent")
        return False
    if sources.kfd is None and sources.amdsmi is None:
        ledger.missing(path, HIP, hip.detail, "absent")
        return False
    source = sources.kfd.source if sources.kfd else AMDSMI
    ledger.missing(path, source, f"HIP: {hip.detail}", "timeout" if hip.kind == "timeout" else "ok")
    return True


def _buses(seen: Seen, amdsmi: tuple[AmdsmiGpu, ...], hip: tuple[HipGpu, ...]) -> list[str | None]:
    if seen.topology.gpus:
        return [gpu.bus_id for gpu in seen.topology.gpus]
    told = hip or amdsmi
    if told:
        return [bus_id(gpu.bus_id.value) for gpu in told]
    return [device.bus_id for device in seen.devices]


def _nth_at(gpus: tuple[G, ...], bus: str | None, nth: int) -> G | None:
    """The nth GPU at a bus id; where a list gives no bus ids, its nth GPU."""
    there = [gpu for gpu in gpus if bus_id(gpu.bus_id.value) == bus]
    if not there and len(gpus) == 1:
        there = [gpu for gpu in gpus if gpu.bus_id.value is None]
    return there[nth] if nth < len(there) else None
