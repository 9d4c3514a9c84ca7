"""How much memory an NVIDIA GPU has, of which kind, and how fast it is."""

from __future__ import annotations

from typing import Literal

from attnctl.machine import Memory
from attnctl.probe.cuda_sources import CUDA, NVML, Sources, cuda_says, nvml_says
from attnctl.probe.host import Host
from attnctl.probe.ledger import Ledger
from attnctl.probe.readings import Reading, mapped, settle, system_memory, told

# no GPU memory is slower than 10 GB/s or, yet, faster than 50 TB/s: outside, a clock was no clock
_LEAST_GBPS, _MOST_GBPS = 10.0, 50_000.0
# two transfers a tick: NVML and CUDA name the clock of the data strobe
_TRANSFERS_PER_TICK = 2


def memory_of(host: Host, ledger: Ledger, path: str, sources: Sources) -> Memory:
    """Kind, total and free bytes: of the MIG instance in use, or of the whole GPU."""
    memory = _counted(nvml_says(sources, "memory"))
    integrated: Reading[int] = cuda_says(sources, "integrated")
    refused = memory.value is None and "NotSupported" in memory.reason
    if integrated.value or sources.tegra or (refused and integrated.value is None):
        return _unified(host, ledger, path, integrated)
    if sources.instance is not None:
        return _sized(ledger, path, "mig", told(f"{NVML} (MIG instance)", sources.instance.memory))
    if memory.value is not None:
        return _sized(ledger, path, "discrete", memory)
    return _total_only(ledger, path, sources, memory, integrated)


def _counted(memory: Reading[tuple[int, int]]) -> Reading[tuple[int, int]]:
    """What NVML counts; a GPU of no bytes was not counted."""
    if memory.value is None or memory.value[0] > 0:
        return memory
    return Reading(NVML, None, "NVML counts 0 bytes")


def bandwidth_of(ledger: Ledger, path: str, sources: Sources, memory: Memory) -> float | None:
    """10^9 bytes per second from clock and bus width; None where they do not tell."""
    where = f"{path}.bandwidth_gbps"
    if memory.kind == "unified":
        ledger.missing(where, NVML, "the memory is the processor's: its clock is not told here")
        return None
    if memory.kind == "mig":
        ledger.missing(where, NVML, "an instance has a share of the bandwidth that is not told")
        return None
    clock: Reading[int] = cuda_says(sources, "memory_clock_khz")
    in_mhz = mapped(clock, lambda khz: khz / 1000)
    return settle(
        ledger,
        where,
        _rate(NVML, nvml_says(sources, "memory_clock_mhz"), nvml_says(sources, "bus_width_bits")),
        _rate(CUDA, in_mhz, cuda_says(sources, "bus_width_bits")),
    )


def _unified(host: Host, ledger: Ledger, path: str, integrated: Reading[int]) -> Memory:
    """GB10, Jetson, Thor: the GPU has the machine's own memory and NVML refuses to count it."""
    ledger.known(f"{path}.memory.kind", CUDA if integrated.value else NVML)
    total, free = system_memory(host)
    return Memory(
        kind="unified",
        total_bytes=settle(ledger, f"{path}.memory.total_bytes", total),
        free_bytes=settle(ledger, f"{path}.memory.free_bytes", free),
    )


def _sized(
    ledger: Ledger, path: str, kind: Literal["discrete", "mig"], pair: Reading[tuple[int, int]]
) -> Memory:
    ledger.known(f"{path}.memory.kind", pair.source)
    return Memory(
        kind=kind,
        total_bytes=settle(ledger, f"{path}.memory.total_bytes", mapped(pair, lambda p: p[0])),
        free_bytes=settle(ledger, f"{path}.memory.free_bytes", mapped(pair, lambda p: p[1])),
    )


def _total_only(
    ledger: Ledger,
    path: str,
    sources: Sources,
    memory: Reading[tuple[int, int]],
    integrated: Reading[int],
) -> Memory:
    """Without NVML: CUDA tells the total, and what is free only inside a context."""
    kind: Literal["discrete", "unknown"] = "discrete" if integrated.value == 0 else "unknown"
    settle(ledger, f"{path}.memory.kind", integrated)
    refused = mapped(memory, lambda pair: pair[0])
    settle(ledger, f"{path}.memory.free_bytes", refused)
    total = settle(
        ledger, f"{path}.memory.total_bytes", refused, cuda_says(sources, "memory_bytes")
    )
    return Memory(kind=kind, total_bytes=total)


def _rate(library: str, clock_mhz: Reading[float], width_bits: Reading[int]) -> Reading[float]:
    """What the pins can move: clock x 2 x width / 8."""
    source = f"{library} clock x bus width"
    if not clock_mhz.value or not width_bits.value:
        why = clock_mhz.reason or width_bits.reason or "no clock or no width"
        return Reading(source, None, why, timed_out=clock_mhz.timed_out)
    rate = clock_mhz.value * _TRANSFERS_PER_TICK * width_bits.value / 8 / 1000
    if not _LEAST_GBPS <= rate <= _MOST_GBPS:
        return Reading(source, None, f"{rate:g} GB/s makes no sense")
    return Reading(source, round(rate, 1))
