"""How much memory an AMD GPU has, of which kind, and how fast it is."""

from __future__ import annotations

from typing import Literal

from attnctl.machine import Memory
from attnctl.probe.arch import APU_PCI_IDS, APU_TARGETS, HBM_TRANSFERS
from attnctl.probe.host import Host
from attnctl.probe.ledger import Ledger
from attnctl.probe.readings import Reading, mapped, number_in, settle, system_memory, untold
from attnctl.probe.rocm_sources import AMDSMI, Sources, amdsmi_says, hip_says, kfd_says


def is_apu(sources: Sources, arch: str | None, pci_id: str | None) -> bool:
    integrated: Reading[int] = hip_says(sources, "integrated")
    return bool(integrated.value) or arch in APU_TARGETS or pci_id in APU_PCI_IDS


def memory_of(host: Host, ledger: Ledger, path: str, sources: Sources, apu: bool) -> Memory:
    """Kind, total and free bytes of one GPU, die or partition."""
    usage: Reading[tuple[int, int]] = amdsmi_says(sources, "memory")
    vram, in_use = mapped(usage, lambda pair: pair[0]), mapped(usage, lambda pair: pair[1])
    if sources.bus_id is not None:
        vram = _better(number_in(host, f"{sources.folder}/mem_info_vram_total"), vram)
        in_use = _better(number_in(host, f"{sources.folder}/mem_info_vram_used"), in_use)
    if apu:
        return _unified(host, ledger, path, vram, in_use)
    # KFD first: it counts the share of a partition where the others count the card
    kfd: Reading[int] = kfd_says(sources, "memory_bytes")
    where = f"{path}.memory.total_bytes"
    settled = settle(ledger, where, kfd, vram, hip_says(sources, "memory_bytes"))
    free = None
    if settled is not None and in_use.value is not None:
        free = max(settled - in_use.value, 0)
    settle(ledger, f"{path}.memory.free_bytes", Reading(in_use.source, free, in_use.reason))
    ledger.facts[f"{path}.memory.kind"] = ledger.facts[where]
    kind: Literal["discrete", "unknown"] = "discrete" if settled else "unknown"
    return Memory(kind=kind, total_bytes=settled, free_bytes=free)


def _better(first: Reading[int], second: Reading[int]) -> Reading[int]:
    return second if first.value is None and second.value is not None else first


def _unified(
    host: Host, ledger: Ledger, path: str, vram: Reading[int], in_use: Reading[int]
) -> Memory:
    """An APU has the system's memory, and what firmware set aside for it, which MemTotal lacks."""
    ledger.known(f"{path}.memory.kind", "PCI id and target of an APU")
    total, free = system_memory(host)
    set_aside = vram.value or 0
    unused = max(set_aside - (in_use.value or 0), 0)
    source = f"{total.source} + {vram.source}" if set_aside else total.source
    sums = {
        "total_bytes": None if total.value is None else total.value + set_aside,
        "free_bytes": None if free.value is None else free.value + unused,
    }
    for name, value in sums.items():
        settle(ledger, f"{path}.memory.{name}", Reading(source, value, total.reason or free.reason))
    return Memory(kind="unified", **sums)


def bandwidth_of(
    ledger: Ledger, path: str, sources: Sources, arch: str | None, memory: Memory
) -> float | None:
    where = f"{path}.bandwidth_gbps"
    if memory.kind == "unified":
        ledger.missing(where, AMDSMI, "the memory is the processor's: its clock is not told here")
        return None
    named: Reading[int] = amdsmi_says(sources, "bandwidth_gbps")
    # amdsmi writes 0 where it does not know
    amdsmi = mapped(named, lambda rate: float(rate) or None)
    return settle(ledger, where, amdsmi, _by_clock(sources, arch))


def _by_clock(sources: Sources, arch: str | None) -> Reading[float]:
    """What KFD's clock and bus width give; known for HBM alone."""
    source = f"{kfd_says(sources, 'gfx').source} clock x bus width"
    kfd, transfers = sources.kfd, HBM_TRANSFERS.get(arch or "")
    if kfd is None:
        return untold(source, sources.kfd_silence)
    if not transfers or not kfd.memory_clock_mhz or not kfd.memory_width_bits:
        return Reading(source, None, "transfers per tick are known for HBM alone")
    rate = kfd.memory_clock_mhz * transfers * kfd.memory_width_bits / 8 / 1000
    return Reading(source, round(rate, 1))
