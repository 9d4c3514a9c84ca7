"""Asks NVML, through pynvml, about every NVIDIA GPU that this process may see.

By hand: `python -m attnctl.probe.children.ask_nvml`.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from attnctl.probe.children.fields import field, print_answer, sentence, text

# where Windows puts its libraries into a WSL guest; not every container has it in its search path
WSL_NVML = "/usr/lib/wsl/lib/libnvidia-ml.so.1"


def answer() -> dict[str, Any]:
    """{"error": {"name", "text"}} where NVML does not start, else what it says of each GPU."""
    try:
        import pynvml as nvml
    except ImportError as error:
        return {"error": {"name": "ImportError", "text": str(error)}}
    try:
        _start(nvml)
    except nvml.NVMLError as error:
        return {"error": {"name": type(error).__name__, "text": str(error)}}
    return {
        "driver": field(lambda: text(nvml.nvmlSystemGetDriverVersion())),
        "cuda": field(nvml.nvmlSystemGetCudaDriverVersion),
        "gpus": [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())],
    }


def _start(nvml: Any) -> None:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if type(error).__name__ != "NVMLError_LibraryNotFound":
            raise
        with contextlib.suppress(OSError):
            # once loaded by its path, the loader finds it by its soname
            ctypes.CDLL(WSL_NVML, mode=ctypes.RTLD_GLOBAL)
        nvml.nvmlInit()


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"error": sentence(error)}
    memory_clock = getattr(nvml, "NVML_CLOCK_MEM", 2)
    return {
        "name": field(lambda: text(nvml.nvmlDeviceGetName(handle))),
        "uuid": field(lambda: text(nvml.nvmlDeviceGetUUID(handle))),
        "bus_id": field(lambda: text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        "pci_id": field(lambda: _pci_id(nvml.nvmlDeviceGetPciInfo(handle).pciDeviceId)),
        "capability": field(lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle))),
        "cores": field(lambda: nvml.nvmlDeviceGetNumGpuCores(handle)),
        "memory": field(lambda: _memory(nvml, handle)),
        "bus_width_bits": field(lambda: nvml.nvmlDeviceGetMemoryBusWidth(handle)),
        "memory_clock_mhz": field(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, memory_clock)),
        "nvlinks": field(lambda: _nvlinks(nvml, handle)),
        "compute_mode": field(lambda: nvml.nvmlDeviceGetComputeMode(handle)),
        "mig_mode": field(lambda: nvml.nvmlDeviceGetMigMode(handle)[0]),
        "mig": _instances(nvml, handle),
    }


def _pci_id(combined: int) -> str:
    """NVML puts the device in the upper half and the vendor in the lower."""
    return f"{combined & 0xFFFF:04x}:{combined >> 16:04x}"


def _memory(nvml: Any, handle: Any) -> list[int]:
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return [info.total, info.free]


def _nvlinks(nvml: Any, handle: Any) -> int:
    """Links that are up. A link number past the last one is "invalid argument", not an error."""
    active = 0
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            active += int(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError as error:
            if link == 0 and type(error).__name__ != "NVMLError_InvalidArgument":
                raise
            break
    return active


def _instances(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    """The MIG instances of one GPU; none where it has no MIG."""
    try:
        if not nvml.nvmlDeviceGetMigMode(handle)[0]:
            return []
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return []
    found = []
    for index in range(count):
        with contextlib.suppress(nvml.NVMLError):  # slots may be empty
            found.append(_instance(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)))
    return found


def _instance(nvml: Any, handle: Any) -> dict[str, Any]:
    return {
        "uuid": field(lambda: text(nvml.nvmlDeviceGetUUID(handle))),
        "name": field(lambda: text(nvml.nvmlDeviceGetName(handle))),
        "memory": field(lambda: _memory(nvml, handle)),
        "units": field(lambda: nvml.nvmlDeviceGetAttributes(handle).multiprocessorCount),
    }


if __name__ == "__main__":
    print_answer(answer)
