"""Invented machines for tests of selection: one device each, and the packages that a test names."""

from __future__ import annotations

from attnctl.machine import Cpu, Gpu, Machine, Package, Platform, Vendor

# shared memory per block and LDS: vendor documentation, in bytes
_SHARED_BYTES = {7: 98304, 8: 101376, 9: 232448, 10: 232448, 11: 232448, 12: 101376}

ALL = {
    "cuda": (
        *("torch", "triton", "flash_attn", "flash_attn_3", "flash_attn_4", "flashinfer"),
        *("flashinfer_cubin", "flash_mla", "vllm"),
    ),
    "rocm": ("torch", "triton", "aiter", "vllm"),
    "xpu": ("torch", "triton", "vllm_xpu_kernels", "vllm"),
    "cpu": ("torch",),
}
"""Platform -> everything that its backends could ask for."""


def cuda(major: int, minor: int = 0, *, packages: tuple[str, ...] | None = None) -> Machine:
    """A box with one NVIDIA GPU of this compute capability."""
    gpu = Gpu(
        index=0,
        arch=f"sm_{major}{minor}",
        capability=(major, minor),
        pci_id="10de:0001",
        shared_memory_bytes=65536 if (major, minor) == (7, 5) else _SHARED_BYTES[major],
    )
    return _machine(f"cuda-{major}{minor}", "cuda", gpu, packages)


def rocm(arch: str = "gfx942", *, packages: tuple[str, ...] | None = None) -> Machine:
    """A box with one AMD GPU of this architecture."""
    lds = 163840 if arch == "gfx950" else 65536
    gpu = Gpu(index=0, arch=arch, pci_id="1002:0001", shared_memory_bytes=lds)
    return _machine(f"rocm-{arch}", "rocm", gpu, packages)


def xpu(*, packages: tuple[str, ...] | None = None) -> Machine:
    """A box with one Intel GPU."""
    gpu = Gpu(index=0, arch="xe2-hpg", pci_id="8086:0001", shared_memory_bytes=131072)
    return _machine("xpu-xe2", "xpu", gpu, packages)


def cpu(*isa: str, packages: tuple[str, ...] | None = None) -> Machine:
    """A box without a GPU, whose processor has these instruction sets."""
    return _machine("cpu", "cpu", None, packages, isa or ("avx2", "fma"))


def _machine(
    name: str,
    platform: Platform,
    gpu: Gpu | None,
    packages: tuple[str, ...] | None,
    isa: tuple[str, ...] = (),
) -> Machine:
    vendor = Vendor(status="ok", gpus=(gpu,)) if gpu else Vendor(status="absent")
    absent = Vendor(status="absent")
    chosen = ALL[platform] if packages is None else packages
    return Machine(
        name=name,
        nvidia=vendor if platform == "cuda" else absent,
        amd=vendor if platform == "rocm" else absent,
        intel=vendor if platform == "xpu" else absent,
        cpu=Cpu(arch="x86_64", isa=isa),
        packages={key: Package(status="ok", source="test", version="1.0") for key in chosen},
    )
