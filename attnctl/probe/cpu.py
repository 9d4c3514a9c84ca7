"""The processor as this process may use it, from /proc/cpuinfo, sysfs and the kernel."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.machine import Cpu
from attnctl.probe import isa, microarchitecture, topology
from attnctl.probe.cpuinfo import Block, blocks, common_words, values
from attnctl.probe.host import Host, HostError, child, read, table
from attnctl.probe.ledger import Ledger
from attnctl.probe.numa import numa_findings

CPUINFO = "/proc/cpuinfo"
SVE_DEFAULT = "/proc/sys/abi/sve_default_vector_length"

_ARCHES = {"amd64": "x86_64", "arm64": "aarch64"}


def probe_cpu(host: Host, ledger: Ledger) -> Cpu:
    """The processor without its limits: no child is started but for the AMX permission."""
    arch = ledger.take("cpu.arch", "uname", lambda: _arch(host))
    try:
        records = blocks(read(host, CPUINFO))
        problem = None if records else HostError("garbled", "no processor is described there")
    except HostError as error:
        records, problem = (), error
    sockets, cores = topology.sockets_and_cores(host, records, ledger)
    cpu = Cpu(
        status="unknown" if problem else "ok",
        source=CPUINFO,
        arch=arch,
        sockets=sockets,
        cores=cores,
        threads=len(records) or None,
        numa_nodes=topology.numa_nodes(host, ledger),
        caches=topology.caches(host, ledger),
    )
    ledger.findings += numa_findings(host, cpu.numa_nodes)
    reason = "not asked: firmware tells the speed of memory modules to root alone"
    ledger.missing("cpu.bandwidth_gbps", "/sys/firmware/dmi", reason)
    if problem:
        for leaf in (
            "vendor",
            "model",
            "microarchitecture",
            "isa_level",
            "isa",
            "sve_bits",
            "threads",
        ):
            ledger.failed(f"cpu.{leaf}", CPUINFO, problem)
        return cpu
    ledger.known("cpu.threads", CPUINFO)
    return msgspec.structs.replace(
        cpu, **_identity(host, arch, records, ledger), **_features(host, arch, records, ledger)
    )


def _arch(host: Host) -> str | None:
    machine = table(host, "uname").get("machine")
    if not isinstance(machine, str) or not machine:
        return None
    return _ARCHES.get(machine, machine)


def _identity(
    host: Host, arch: str | None, records: tuple[Block, ...], ledger: Ledger
) -> dict[str, Any]:
    """Vendor, model and design: names for people, never a basis for features."""
    first = records[0]
    vendor_id = first.get("vendor_id", "")
    if arch == "aarch64":
        vendor = microarchitecture.arm_vendor(first)
        designs = {microarchitecture.arm(record) for record in records}
    else:
        vendor = microarchitecture.X86_VENDORS.get(vendor_id, vendor_id) or None
        designs = {microarchitecture.x86(first)}
    design = "+".join(sorted(name for name in designs if name)) or None
    model = next(
        (
            names[0]
            for key in ("model name", "cpu model", "uarch")
            if (names := values(records, key))
        ),
        None,
    )
    source = CPUINFO
    if model is None:
        model, source = _board(host)
    ledger.note("cpu.vendor", CPUINFO, vendor, "no vendor is named there")
    ledger.note("cpu.model", source, model, "no model is named there")
    table_name = "the table of designs"
    reason = f"{table_name} does not have family, model or part of this processor"
    ledger.note("cpu.microarchitecture", f"{CPUINFO} and {table_name}", design, reason)
    return {"vendor": vendor, "model": model, "microarchitecture": design}


def _board(host: Host) -> tuple[str | None, str]:
    """(name of the board, its source): Arm systems often name that and no processor."""
    source = "/sys/firmware/devicetree/base/model"
    try:
        return read(host, source).strip("\0\n ") or None, source
    except HostError:
        return None, CPUINFO


def _features(
    host: Host, arch: str | None, records: tuple[Block, ...], ledger: Ledger
) -> dict[str, Any]:
    """The usable instructions: isa, isa_unusable, isa_level, sve_bits."""
    if arch == "aarch64":
        return _arm_features(host, records, ledger)
    if arch == "riscv64":
        return _riscv_features(records, ledger)
    if arch not in ("x86_64", "i686", "i386"):
        features = common_words(records, "features", "flags")
        ledger.known("cpu.isa", f"{CPUINFO}: features")
        ledger.missing("cpu.isa_level", CPUINFO, f"no levels are defined for {arch}", "absent")
        ledger.missing("cpu.sve_bits", CPUINFO, f"{arch} has no SVE", "absent")
        return {"isa": isa.other(features).usable}
    flags = common_words(records, "flags")
    ledger.missing("cpu.sve_bits", CPUINFO, f"{arch} has no SVE", "absent")
    found = isa.x86(flags, _amx(host) if "amx_tile" in flags else None)
    level = isa.x86_level(flags) if arch == "x86_64" else None
    source = f"{CPUINFO}: flags"
    if "amx_tile" in flags:
        source += ", arch_prctl and CPUID for AMX"
    ledger.known("cpu.isa", source)
    for name, reason in found.unusable.items():
        ledger.missing(f"cpu.isa_unusable.{name}", source, reason, "absent")
    ledger.note("cpu.isa_level", source, level, "the flags are below x86-64-v1")
    return {"isa": found.usable, "isa_unusable": found.unusable, "isa_level": level}


def _amx(host: Host) -> isa.Amx:
    try:
        answer = child(host, "ask_amx")
        return msgspec.convert(answer, isa.Amx)
    except HostError as error:
        return isa.Amx(reason=f"the tile permission could not be asked for: {error.detail}")
    except msgspec.ValidationError as error:
        return isa.Amx(reason=f"the tile permission could not be asked for: {error}")


def _arm_features(host: Host, records: tuple[Block, ...], ledger: Ledger) -> dict[str, Any]:
    features, source = common_words(records, "features"), f"{CPUINFO}: Features"
    if not features:
        features, source = _hwcap(host), "/proc/self/auxv: AT_HWCAP, AT_HWCAP2"
    level = isa.arm_level(features)
    ledger.note("cpu.isa", source, features or None, "no features are listed there")
    ledger.note("cpu.isa_level", source, level, "the features are below armv8a")
    bits = None
    if "sve" in features:
        bits = ledger.take("cpu.sve_bits", "prctl(PR_SVE_GET_VL)", lambda: _sve_bits(host))
    else:
        ledger.missing("cpu.sve_bits", source, "there is no SVE", "absent")
    return {"isa": isa.arm(features).usable, "isa_level": level, "sve_bits": bits}


def _hwcap(host: Host) -> frozenset[str]:
    try:
        words = table(host, "auxv")
    except HostError:
        return frozenset()
    hwcap, hwcap2 = words.get("hwcap"), words.get("hwcap2")
    if type(hwcap) is not int or type(hwcap2) is not int:
        return frozenset()
    return isa.arm_features_of_hwcap(hwcap, hwcap2)


def _sve_bits(host: Host) -> int | None:
    """The vector length that this process runs with; the system's default where it will not say."""
    try:
        length = host.ask("sve_bytes")
    except HostError:
        text = read(host, SVE_DEFAULT).strip()
        length = int(text) if text.isdecimal() and len(text) < 6 else None
    # the architecture has 16 to 256 bytes, in steps of 16
    return length * 8 if type(length) is int and length in range(16, 257, 16) else None


def _riscv_features(records: tuple[Block, ...], ledger: Ledger) -> dict[str, Any]:
    source = f"{CPUINFO}: isa"
    ledger.missing("cpu.sve_bits", source, "RISC-V has no SVE", "absent")
    texts = [record.get("hart isa") or record.get("isa") or "" for record in records]
    common = frozenset.intersection(*(isa.riscv_extensions(text) for text in texts))
    level = isa.riscv_level(common)
    ledger.note("cpu.isa", source, common or None, "no ISA string is there")
    ledger.note("cpu.isa_level", source, level, "the extensions are below rv64gc")
    return {"isa": isa.riscv(common).usable, "isa_level": level}
