"""One Intel GPU, merged from what Level Zero, its driver's files and its PCI id say of it."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from attnctl.machine import Gpu, Memory
from attnctl.probe.answers import Field, Silence, ZeGpu
from attnctl.probe.drm import RenderNode
from attnctl.probe.host import Host, HostError, names_in
from attnctl.probe.ledger import Ledger
from attnctl.probe.pci import DEVICES, PciDevice, bus_id
from attnctl.probe.readings import Reading, mapped, number_in, settle, system_memory, told, untold
from attnctl.probe.xe_generation import Generation, generation_of
from attnctl.probe.xpu_findings import LEVEL_ZERO

T = TypeVar("T")

TABLE = "PCI id table"


class Sources(msgspec.Struct, frozen=True):
    """The parts of the answers that are about one GPU. A silence says why a part is missing."""

    ze: ZeGpu | None = None
    ze_silence: Silence = Silence()
    pci: PciDevice | None = None
    node: RenderNode = RenderNode()

    @property
    def pci_id(self) -> str | None:
        return (self.ze.pci_id.value if self.ze else None) or (self.pci and self.pci.pci_id) or None

    @property
    def generation(self) -> Generation | None:
        return generation_of((self.pci_id or "").partition(":")[2] or None)


def merge(host: Host, ledger: Ledger, index: int, sources: Sources) -> Gpu:
    """The GPU, and one fact for each of its leaves under `intel.gpus.INDEX`."""
    path = f"intel.gpus.{index}"
    _note_subgroups(ledger, path, sources)
    return Gpu(
        index=index,
        name=settle(ledger, f"{path}.name", _ze(sources, "name"), _generation(sources, "name")),
        arch=settle(ledger, f"{path}.arch", _generation(sources, "arch", assumed=False)),
        features=_features(ledger, path, sources),
        uuid=settle(ledger, f"{path}.uuid", _ze(sources, "uuid")),
        pci_id=_pci_id(ledger, path, sources),
        pci_bus_id=_bus_id(ledger, path, sources),
        unit_count=settle(ledger, f"{path}.unit_count", _ze(sources, "units")),
        eu_count=settle(ledger, f"{path}.eu_count", _ze(sources, "execution_units")),
        memory=_memory(host, ledger, path, sources),
        shared_memory_bytes=settle(
            ledger, f"{path}.shared_memory_bytes", _ze(sources, "shared_memory_bytes")
        ),
        bandwidth_gbps=settle(
            ledger,
            f"{path}.bandwidth_gbps",
            Reading[float](LEVEL_ZERO, None, "its memory clock is not the rate of transfers"),
        ),
        fp64=settle(ledger, f"{path}.fp64", _ze(sources, "fp64"), _generation(sources, "fp64")),
        fp16=settle(ledger, f"{path}.fp16", _ze(sources, "fp16"), _generation(sources, "fp16")),
    )


def _ze(sources: Sources, name: str) -> Reading[T]:
    if sources.ze is None:
        return untold(LEVEL_ZERO, sources.ze_silence)
    field: Field[T] = getattr(sources.ze, name)
    return told(LEVEL_ZERO, field)


def _sysfs(sources: Sources, name: str) -> Reading[T]:
    value: T | None = getattr(sources.pci, name, None)
    return Reading(DEVICES, value)


def _generation(sources: Sources, name: str, assumed: bool = True) -> Reading[T]:
    """What every GPU of a generation has."""
    if sources.generation is None:
        return Reading(TABLE, None, f"{sources.pci_id} is not in it")
    value: T = getattr(sources.generation, name)
    return Reading(TABLE, value, note="from the generation" if assumed else "", assumed=assumed)


def _features(ledger: Ledger, path: str, sources: Sources) -> tuple[str, ...]:
    """("xmx",) where the generation has matrix units."""
    xmx: bool | None = settle(ledger, f"{path}.features", _generation(sources, "xmx"))
    return ("xmx",) if xmx else ()


def _pci_id(ledger: Ledger, path: str, sources: Sources) -> str | None:
    sysfs: Reading[str] = _sysfs(sources, "pci_id")
    return settle(ledger, f"{path}.pci_id", _ze(sources, "pci_id"), sysfs)


def _bus_id(ledger: Ledger, path: str, sources: Sources) -> str | None:
    ze: Reading[str] = _ze(sources, "bus_id")
    return settle(ledger, f"{path}.pci_bus_id", mapped(ze, bus_id), _sysfs(sources, "bus_id"))


def _note_subgroups(ledger: Ledger, path: str, sources: Sources) -> None:
    """There is no warp size: each kernel chooses one; the fact names the choices."""
    sizes: Reading[tuple[int, ...]] = _ze(sources, "subgroup_sizes")
    choices = ", ".join(map(str, sizes.value or ()))
    reason = f"a kernel chooses its sub-group size: {choices}" if choices else sizes.reason
    ledger.missing(f"{path}.warp_size", LEVEL_ZERO, reason or "no source says", "absent")


def _memory(host: Host, ledger: Ledger, path: str, sources: Sources) -> Memory:
    integrated: Reading[bool] = _ze(sources, "integrated")
    by_table: Reading[bool] = _generation(sources, "integrated")
    shared = settle(ledger, f"{path}.memory.kind", integrated, by_table)
    if shared:
        total, free = system_memory(host)
        return Memory(
            kind="unified",
            total_bytes=settle(ledger, f"{path}.memory.total_bytes", total),
            free_bytes=settle(ledger, f"{path}.memory.free_bytes", free),
        )
    kind: Literal["discrete", "unknown"] = "unknown" if shared is None else "discrete"
    on_tiles, available = _local_memory(host, sources)
    ze: Reading[int] = _ze(sources, "memory_bytes")
    return Memory(
        kind=kind,
        total_bytes=settle(ledger, f"{path}.memory.total_bytes", ze, on_tiles),
        free_bytes=settle(ledger, f"{path}.memory.free_bytes", available),
    )


def _local_memory(host: Host, sources: Sources) -> tuple[Reading[int], Reading[int]]:
    """Total and free bytes on the card from the files of its driver; each driver has its own."""
    if sources.pci is None:
        nothing: Reading[int] = Reading(DEVICES, None, "not on the PCI bus")
        return nothing, nothing
    if sources.pci.driver == "i915":
        folder = f"{sources.pci.path}/drm/{sources.node.card or 'card0'}"
        return (
            number_in(host, f"{folder}/lmem_total_bytes"),
            number_in(host, f"{folder}/lmem_avail_bytes"),
        )
    untold: Reading[int] = Reading("driver xe", None, "it does not tell what is free")
    return _tiles_memory(host, sources.pci), untold


def _tiles_memory(host: Host, device: PciDevice) -> Reading[int]:
    try:
        names = [name for name in names_in(host, device.path) if name.startswith("tile")]
    except HostError as error:
        return Reading(device.path, None, error.detail)
    sizes = [number_in(host, f"{device.path}/{n}/physical_vram_size_bytes") for n in names]
    known = [size.value for size in sizes if size.value is not None]
    source = f"{device.path}/tile*/physical_vram_size_bytes"
    if not known or len(known) < len(sizes):
        return Reading(source, None, next((s.reason for s in sizes if s.reason), "no tile"))
    return Reading(source, sum(known))
