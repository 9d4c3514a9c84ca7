"""The screen of `attnctl probe`: one section per vendor, then the processor, software, findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attnctl.findings import Finding
from attnctl.machine import Fact, Gpu, Machine, Package, Vendor
from attnctl.render.amounts import bytes_text, count_text
from attnctl.render.processor import processor
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Style, Table, View

VENDORS = (("NVIDIA", "nvidia"), ("AMD", "amd"), ("Intel", "intel"))
UNIT_NAMES = {"nvidia": "SMs", "amd": "CUs", "intel": "Xe cores"}
# missing facts that are listed one by one without being asked for
FEW = 5
HAD = frozenset({"ok", "absent", "assumed"})


def probe_view(machine: Machine, sources: bool = False) -> View:
    """The whole screen; sources: with a table of where each fact came from."""
    blocks: list[Block] = []
    for title, key in VENDORS:
        blocks += _vendor(title, key, getattr(machine, key), machine.facts)
    blocks += processor(machine.cpu)
    blocks += _system(machine)
    blocks += _software(machine)
    blocks += _facts(machine, every=sources)
    blocks += _findings(machine)
    return (*blocks, Line(""), Line(verdict(machine)))


def verdict(machine: Machine) -> Mark:
    """The last line: what this machine is to a backend, and how many problems it has."""
    who = {"probed": "this machine", "replayed": "this tape"}.get(machine.origin, machine.name)
    problems = count_text(len(machine.findings), "problem")
    text = f"{who}: {machine.platform}, {_devices(machine)}; {problems}"
    return Mark(text, "warn" if machine.findings else "good")


def _devices(machine: Machine) -> str:
    if not machine.gpus:
        cpu = machine.cpu
        name = cpu.model or cpu.microarchitecture or cpu.arch or "unknown processor"
        level = f" ({cpu.isa_level})" if cpu.isa_level else ""
        cores = f", {count_text(cpu.usable, 'usable core')}" if cpu.usable else ""
        return f"{name}{level}{cores}"
    counts: dict[str, int] = {}
    for gpu in machine.gpus:
        arch = f" ({gpu.arch})" if gpu.arch else ""
        label = f"{gpu.name or 'unnamed GPU'}{arch}"
        counts[label] = counts.get(label, 0) + 1
    return ", ".join(f"{count} x {label}" for label, count in counts.items())


def _is_masked(facts: Mapping[str, Fact], key: str, gpu: Gpu) -> bool:
    fact = facts.get(f"{key}.gpus.{gpu.index}.visible")
    return fact is None or fact.reason in ("", "masked")


def _vendor(title: str, key: str, vendor: Vendor, facts: Mapping[str, Fact]) -> list[Block]:
    if not vendor.gpus:
        reason = f": {vendor.reason}" if vendor.reason else ""
        style: Style = "dim" if vendor.status == "absent" else "warn"
        return [Line(Mark(f"{title:8}{vendor.status}{reason}", style), hang=8)]
    runtime = {"nvidia": "CUDA", "amd": "ROCm", "intel": "Level Zero"}[key]
    versions = [
        f"{name} {value}"
        for name, value in (("driver", vendor.driver), (runtime, vendor.runtime))
        if value
    ]
    if vendor.status not in HAD:
        versions.append(f"{vendor.status}: {vendor.reason}")
    rows = tuple(_gpu(gpu, _is_masked(facts, key, gpu)) for gpu in vendor.gpus)
    memories = ("memory", "free", "shared memory", "GB/s")
    columns = ("gpu", "use", "name", "arch", UNIT_NAMES[key], *memories, "PCI", "more")
    count = count_text(len(vendor.gpus), "GPU")
    return [
        Heading(f"{title:8}{', '.join([count, *versions])}"),
        Table(columns, rows, indent=2, fixed=len(columns)),
    ]


def _gpu(gpu: Gpu, masked: bool) -> tuple[Cell, ...]:
    memory = gpu.memory
    kind = "" if memory.kind in ("discrete", "unknown") else f" {memory.kind}"
    return (
        str(gpu.index),
        _use(gpu, masked),
        gpu.name or "?",
        gpu.arch or "?",
        _number(gpu.unit_count),
        f"{bytes_text(memory.total_bytes)}{kind}",
        "" if memory.free_bytes is None else bytes_text(memory.free_bytes),
        bytes_text(gpu.shared_memory_bytes),
        "" if gpu.bandwidth_gbps is None else f"{gpu.bandwidth_gbps:.0f}",
        " at ".join(filter(None, (gpu.pci_id, gpu.pci_bus_id))),
        ", ".join(_more(gpu)),
    )


def _use(gpu: Gpu, masked: bool) -> Cell:
    """The logical index, or that a visibility mask hides it, or that nothing can use it."""
    if not gpu.visible:
        return Mark("masked" if masked else "not usable", "warn")
    return "" if gpu.logical_index is None else f"as {gpu.logical_index}"


def _more(gpu: Gpu) -> list[str]:
    more = list(gpu.features)
    if gpu.eu_count:
        more.append(f"{gpu.eu_count} EUs")
    if gpu.nvlink_count:
        more.append(f"{gpu.nvlink_count} NVLinks")
    if gpu.mig:
        more.append(f"MIG: {', '.join(gpu.mig)}")
    return more


def _number(number: int | None) -> str:
    return "?" if number is None else str(number)


def _system(machine: Machine) -> list[Block]:
    if not machine.os:
        return []
    plain = ("system", "kernel", "distribution")
    known = " ".join(machine.os[key] for key in plain[:2] if key in machine.os)
    parts = [known, *(machine.os[key] for key in plain[2:] if key in machine.os)]
    parts += [f"{key.replace('_', ' ')} {v}" for key, v in machine.os.items() if key not in plain]
    return [Line(f"{'system':8}" + ", ".join(filter(None, parts)), hang=8)]


def _software(machine: Machine) -> list[Block]:
    blocks: list[Block] = []
    there = [(n, p) for n, p in machine.packages.items() if p.status != "absent"]
    absent = [name for name, p in machine.packages.items() if p.status == "absent"]
    if there:
        rows = tuple(_package(name, package) for name, package in there)
        blocks += [Heading("software"), Table((), rows, indent=2)]
    if absent:
        indent = 2 if there else 0
        blocks.append(Line(Mark(f"not installed: {', '.join(absent)}", "dim"), indent))
    if machine.usual_packages:
        usual = ", ".join(f"{n} {v}".strip() for n, v in machine.usual_packages.items())
        blocks.append(Line(f"usual image: {usual}"))
    return blocks


def _package(name: str, package: Package) -> tuple[Cell, ...]:
    build = " ".join(f"{key} {v}" for key, v in package.build.items() if key != "git_version")
    if package.usable is False:
        return (name, package.version or "?", build, Mark(f"not usable: {package.reason}", "bad"))
    state = "" if package.status == "ok" else f"{package.status}: {package.reason or '?'}"
    return (name, package.version or "?", build, Mark(state, "warn"))


def _facts(machine: Machine, every: bool) -> list[Block]:
    """Where facts came from; without `every`, only those that could not be had."""
    shown = {path: fact for path, fact in machine.facts.items() if every or fact.status not in HAD}
    if not shown:
        return []
    if not every and len(shown) > FEW:
        return [Line(Mark(_counted(shown), "warn"))]
    rows = tuple(
        (path, Mark(fact.status, "" if fact.status in HAD else "warn"), fact.source, fact.reason)
        for path, fact in sorted(shown.items())
    )
    title = "sources" if every else "could not be had"
    table = Table(("fact", "status", "source", "reason"), rows, indent=2)
    if not (every and machine.timings_ms):
        return [Heading(title), table]
    spent = ", ".join(f"{part} {time_ms:.1f}" for part, time_ms in machine.timings_ms.items())
    return [Heading(title), table, Line(f"asked in milliseconds: {spent}", indent=2)]


def _counted(missing: Iterable[str]) -> str:
    """How many facts are missing of each part; a machine without a driver lacks dozens."""
    parts = [path.partition(".")[0] for path in missing]
    counts = ", ".join(f"{parts.count(part)} of {part}" for part in dict.fromkeys(sorted(parts)))
    return f"{len(parts)} facts could not be had ({counts}); why: attnctl probe --sources"


def _findings(machine: Machine) -> list[Block]:
    if not machine.findings:
        return []
    rows = tuple(_finding(finding) for finding in machine.findings)
    return [Heading("findings"), Table(("code", "wanted", "found", "fix"), rows, indent=2)]


def _finding(finding: Finding) -> tuple[Cell, ...]:
    source = f" [{finding.source}]" if finding.source else ""
    return (
        Mark(finding.code, "warn"),
        finding.wanted,
        f"{finding.found}{source}",
        finding.fix,
    )
