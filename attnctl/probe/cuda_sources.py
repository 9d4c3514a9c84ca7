"""What each source says of one NVIDIA GPU, and why it says nothing where it does not."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from attnctl.probe.answers import CudaGpu, Field, MigInstance, NvmlGpu, Silence
from attnctl.probe.cuda_presence import KernelGpu
from attnctl.probe.pci import PciDevice, bus_id
from attnctl.probe.readings import Reading, told, untold

T = TypeVar("T")

NVML, CUDA = "NVML", "CUDA driver"


class Sources(msgspec.Struct, frozen=True):
    """The parts of the answers that are about one GPU. A silence says why a part is missing.

    instance: the MIG instance in use: the masked one, or the first, which CUDA takes by itself.
    """

    nvml: NvmlGpu | None = None
    nvml_silence: Silence = Silence()
    cuda: CudaGpu | None = None
    cuda_silence: Silence = Silence()
    instance: MigInstance | None = None
    kernel: KernelGpu | None = None
    pci: PciDevice | None = None
    tegra: bool = False


def nvml_says(sources: Sources, name: str) -> Reading[T]:
    """One field of NVML's answer, by its name in NvmlGpu."""
    return _said(NVML, sources.nvml, sources.nvml_silence, name)


def cuda_says(sources: Sources, name: str) -> Reading[T]:
    """One field of the CUDA driver's answer, by its name in CudaGpu."""
    return _said(CUDA, sources.cuda, sources.cuda_silence, name)


def bus_of(sources: Sources) -> str | None:
    nvml: Reading[str] = nvml_says(sources, "bus_id")
    cuda: Reading[str] = cuda_says(sources, "bus_id")
    kernel = sources.kernel.bus_id if sources.kernel else None
    return bus_id(nvml.value) or bus_id(cuda.value) or kernel


def uuid_of(sources: Sources) -> str | None:
    nvml: Reading[str] = nvml_says(sources, "uuid")
    cuda: Reading[str] = cuda_says(sources, "uuid")
    return nvml.value or cuda.value


def in_mig_mode(gpu: NvmlGpu | None) -> bool:
    return gpu is not None and bool(gpu.mig_mode.value)


def _said(source: str, gpu: NvmlGpu | CudaGpu | None, why: Silence, name: str) -> Reading[T]:
    if gpu is None:
        return untold(source, why)
    if isinstance(gpu, NvmlGpu) and gpu.error:
        return Reading(source, None, gpu.error)
    field: Field[T] = getattr(gpu, name)
    return told(source, field)
