"""How much memory an AMD GPU has, of which kind, and how fast it is."""

from __future__ import annotations

from attnctl.machine import Memory
from attnctl.probe.arch import APU_PCI_IDS, APU_TARGETS, HBM_TRANSFERS
from attnctl.probe.host import Host
from attnctl.probe.ledger import Ledger
from attnctl.probe.readings import Reading, number_in, settle, system_memory
from attnctl.probe.rocm_sources import AMDSMI, Sources, amdsmi_says, hip_says, kfd_says


def is_apu(sources: Sources, arch: str | None, pci_id: str | None) -> bool:
    integrated: Reading[int] = hip_says(sources, "integrated")
    return bool(integrated.value) or arch in APU_TARGETS or pci_id in APU_PCI_IDS


def memory_of(host: Host, ledger: Ledger, path: str, sources: Sources, apu: bool) -> Memory:
    usage: Reading[tuple[int, int]] = amdsmi_says(sources, "memory")
    total, used = usage.value if usage.value else (None, None)
    vram, vram_used = Reading(AMDSMI, total, usage.reason), Reading(AMDSMI, used, usage.reason)
    if sources.bus_id is not None:
        vram = _better(number_in(host, f"{sources.folder}/mem_info_vram_total"), vram)
        vram_used = _better(number_in(host, f"{sources.folder}/mem_info_vram_used"), vram_used)
    if apu:
        return _unified(host, ledger, path, vram, vram_used)
    settled = settle(
        ledger,
        f"{path}.memory.total_bytes",
        vram,
        kfd_says(sources, "memory_bytes"),
        hip_says(sources, "memory_bytes"),
    )
    ledger.note(
        f"{path}.memory.kind",
        kfd_says(sources, "gfx").source,
        settled and "discrete",
        "no source says",
    )
    free = None
    if settled is not None and vram_used.value is not None:
        free = max(settled - vram_used.value, 0)
    return Memory(
        kind="discrete" if settled else "unknown",
        total_bytes=settled,
        free_bytes=settle(
            ledger,
            f"{path}.memory.free_bytes",
            Reading(vram_used.source, free, vram_used.reason),
        ),
    )


def _better(first: Reading[int], second: Reading[int]) -> Reading[int]:
    return second if first.value is None and second.value is not None else first


def _unified(
    host: Host, ledger: Ledger, path: str, vram: Reading[int], vram_used: Reading[int]
) -> Memory:
    """An APU has the system's memory and the part of it that firmware set aside, which is no more
    in MemTotal."""
    ledger.known(f"{path}.memory.kind", "PCI id and target of an APU")
    set_aside, in_use = vram.value or 0, vram_used.value or 0
    total, free = system_memory(host)
    both = f"{total.source} + {vram.source}" if set_aside else total.source
    return Memory(
        kind="unified",
        total_bytes=settle(
            ledger,
            f"{path}.memory.total_bytes",
            Reading(both, None if total.value is None else total.value + set_aside, total.reason),
        ),
        free_bytes=settle(
            ledger,
            f"{path}.memory.free_bytes",
            Reading(
                both,
                None if free.value is None else free.value + max(set_aside - in_use, 0),
                free.reason,
            ),
        ),
    )


def bandwidth_of(
    ledger: Ledger, path: str, sources: Sources, arch: str | None, memory: Memory
) -> float | None:
    where = f"{path}.bandwidth_gbps"
    named: Reading[int] = amdsmi_says(sources, "bandwidth_gbps")
    amdsmi = Reading(AMDSMI, float(named.value) if named.value else None, named.reason)
    if memory.kind == "unified":
        ledger.missing(where, AMDSMI, "the memory is the processor's: its clock is not told here")
        return None
    kfd = sources.kfd
    source = f"{kfd_says(sources, 'gfx').source} clock x bus width"
    transfers = HBM_TRANSFERS.get(arch or "")
    if kfd is None or not transfers or not kfd.memory_clock_mhz or not kfd.memory_width_bits:
        why = "the transfers per tick are known for HBM alone" if kfd else sources.kfd_reason
        return settle(ledger, where, amdsmi, Reading(source, None, why))
    rate = kfd.memory_clock_mhz * transfers * kfd.memory_width_bits / 8 / 1000
    return settle(ledger, where, amdsmi, Reading(source, round(rate, 1)))
