"""The processor's section of the screen of `attnctl probe`."""

from __future__ import annotations

from attnctl.machine import Cpu
from attnctl.render.amounts import bytes_text, count_text
from attnctl.render.view import Block, Line, Mark

# features that a backend of the field asks about, widest first; the rest is under --json
X86 = ("amx_bf16", "amx_int8", "amx_fp16", "amx_tile", "avx512_fp16", "avx512_bf16", "avx512f")
NOTABLE = (*X86, "avx2", "fma", "sve2", "sve", "i8mm", "bf16", "asimd", "v")


def processor(cpu: Cpu) -> list[Block]:
    """What it is, what of it this process may use, and which of its features are out of reach."""
    name = cpu.model or cpu.microarchitecture or cpu.arch or "unknown"
    kind = ", ".join(filter(None, (cpu.microarchitecture, cpu.isa_level)))
    parts = [f"{name} ({kind})" if kind else name, *_cores(cpu), *_memory(cpu)]
    blocks: list[Block] = [Line(f"{'CPU':8}{', '.join(parts)}", hang=8)]
    notable = [feature for feature in NOTABLE if feature in cpu.isa]
    if cpu.sve_bits:
        notable.append(f"{cpu.sve_bits}-bit SVE")
    if notable:
        blocks.append(Line(f"usable: {' '.join(notable)}", indent=8))
    for feature, reason in cpu.isa_unusable.items():
        blocks.append(Line(Mark(f"{feature} is there but not usable: {reason}", "warn"), 8))
    caches = [
        f"L{cache.level} {bytes_text(cache.size_bytes)}"
        for cache in cpu.caches
        if cache.type != "instruction"
    ]
    if caches:
        blocks.append(Line(f"caches: {', '.join(dict.fromkeys(caches))}", indent=8))
    return blocks


def _cores(cpu: Cpu) -> list[str]:
    cores = []
    if cpu.usable is not None:
        of = f" of {cpu.threads}" if cpu.threads and cpu.threads != cpu.usable else ""
        cores.append(f"{cpu.usable}{of} usable {'core' if cpu.usable == 1 else 'cores'}")
    if cpu.quota is not None:
        cores.append(f"quota {cpu.quota:g}")
    if cpu.numa_nodes and cpu.numa_nodes > 1:
        cores.append(count_text(cpu.numa_nodes, "NUMA node"))
    return cores


def _memory(cpu: Cpu) -> list[str]:
    total, limit = cpu.memory_total_bytes, cpu.memory_limit_bytes
    if limit is not None and (total is None or limit < total):
        return [f"{bytes_text(limit)} by cgroup limit"]
    return [] if total is None else [bytes_text(total)]
