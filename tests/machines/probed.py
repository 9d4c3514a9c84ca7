"""Machines as a probe would describe them, and ways to change one fact."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.machine import Cpu, Gpu, Machine, Memory, Package, Vendor

GIB = 1 << 30


def changed(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)


def with_gpu(machine: Machine, **fields: Any) -> Machine:
    """The machine with other facts of its first NVIDIA GPU."""
    first, *rest = machine.nvidia.gpus
    gpus = (changed(first, **fields), *rest)
    return changed(machine, nvidia=changed(machine.nvidia, gpus=gpus))


def probed_h200() -> Machine:
    """What a probe says of two H200s: bus addresses, a driver, and figures derived from clocks."""
    cards = tuple(
        Gpu(
            index=index,
            name="NVIDIA H200 141GB HBM3e",
            arch="sm_90",
            capability=(9, 0),
            uuid=f"GPU-{index}",
            pci_id="10DE:2335",
            pci_bus_id=f"0000:{index + 1}7:00.0",
            unit_count=132,
            warp_size=32,
            memory=Memory(kind="discrete", total_bytes=150_754_820_096, free_bytes=149 * GIB),
            shared_memory_bytes=232_448,
            bandwidth_gbps=4916.7,
            logical_index=index,
        )
        for index in range(2)
    )
    return Machine(
        name="rack",
        origin="probed",
        nvidia=Vendor(status="ok", driver="580.159.04", runtime="13.0", gpus=cards),
        amd=Vendor(status="absent"),
        intel=Vendor(status="absent"),
        cpu=Cpu(arch="x86_64", vendor="Intel", isa=("avx2",), cores=16, usable=16),
        packages={"torch": Package(status="ok", source="version.py", version="2.11.0+cu130")},
    )


def zen3_guest() -> Machine:
    """What a probe says inside a virtual machine of two cores on a Zen 3 processor."""
    return Machine(
        name="guest",
        origin="probed",
        nvidia=Vendor(status="absent"),
        amd=Vendor(status="absent"),
        intel=Vendor(status="unknown", reason="no access"),
        cpu=Cpu(
            arch="x86_64",
            vendor="AMD",
            model="AMD EPYC",
            microarchitecture="zen3",
            isa_level="x86-64-v3",
            isa=("sse4_2", "avx", "f16c", "fma", "avx2"),
            cores=2,
            threads=2,
            usable=2,
            memory_total_bytes=23 * GIB,
        ),
    )
