"""Asks the CUDA driver about every GPU, without creating a context.

By hand: `python -m attnctl.probe.children.ask_cuda`. Numbers of device attributes: enum
CUdevice_attribute of the CUDA driver API.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from attnctl.probe.children.fields import field, open_library, print_answer, text

LIBRARIES = (
    "libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1",
)

ATTRIBUTES = {
    "shared_memory_bytes": 8,
    "warp_size": 10,
    "units": 16,
    "integrated": 18,
    "memory_clock_khz": 36,
    "bus_width_bits": 37,
    "capability_major": 75,
    "capability_minor": 76,
    "shared_memory_optin_bytes": 97,
}


class CudaError(Exception):
    """A call of the driver API that did not return CUDA_SUCCESS."""


def answer() -> dict[str, Any]:
    """{"error": {"name", "text"}} where cuInit fails, else the version and one entry per GPU.

    The order is CUDA's own, which CUDA_DEVICE_ORDER governs; the visibility mask is lifted, so that
    masked GPUs are described too.
    """
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    cuda = open_library(LIBRARIES)
    status = cuda.cuInit(0)
    if status:
        return {"error": {"name": _error_name(cuda, status), "text": f"cuInit returned {status}"}}
    return {
        "version": field(lambda: _integer(cuda, "cuDriverGetVersion")),
        "gpus": [_gpu(cuda, index) for index in range(_integer(cuda, "cuDeviceGetCount"))],
    }


def _gpu(cuda: ctypes.CDLL, index: int) -> dict[str, Any]:
    device = ctypes.c_int(_integer(cuda, "cuDeviceGet", ctypes.c_int(index)))
    described: dict[str, Any] = {
        "name": field(lambda: _text(cuda, "cuDeviceGetName", device)),
        "uuid": field(lambda: _uuid(cuda, device)),
        "bus_id": field(lambda: _text(cuda, "cuDeviceGetPCIBusId", device)),
        "memory_bytes": field(lambda: _size(cuda, "cuDeviceTotalMem_v2", device)),
    }
    for name, number in ATTRIBUTES.items():
        described[name] = _attribute(cuda, number, device)
    return described


def _attribute(cuda: ctypes.CDLL, number: int, device: ctypes.c_int) -> dict[str, Any]:
    return field(lambda: _integer(cuda, "cuDeviceGetAttribute", ctypes.c_int(number), device))


def _integer(cuda: ctypes.CDLL, function: str, *args: Any) -> int:
    value = ctypes.c_int()
    _check(cuda, function, getattr(cuda, function)(ctypes.byref(value), *args))
    return value.value


def _size(cuda: ctypes.CDLL, function: str, device: ctypes.c_int) -> int:
    value = ctypes.c_size_t()
    _check(cuda, function, getattr(cuda, function)(ctypes.byref(value), device))
    return value.value


def _text(cuda: ctypes.CDLL, function: str, device: ctypes.c_int) -> str:
    buffer = ctypes.create_string_buffer(256)
    _check(cuda, function, getattr(cuda, function)(buffer, ctypes.c_int(len(buffer)), device))
    return text(buffer.value)


def _uuid(cuda: ctypes.CDLL, device: ctypes.c_int) -> str:
    """The UUID of the whole GPU, as NVML writes it; the _v2 call would name a MIG instance."""
    raw = ctypes.create_string_buffer(16)
    _check(cuda, "cuDeviceGetUuid", cuda.cuDeviceGetUuid(raw, device))
    digits = raw.raw.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "GPU-" + "-".join(parts)


def _check(cuda: ctypes.CDLL, function: str, status: int) -> None:
    if status:
        raise CudaError(f"{function}: {_error_name(cuda, status)}")


def _error_name(cuda: ctypes.CDLL, status: int) -> str:
    name = ctypes.c_char_p()
    try:
        if cuda.cuGetErrorName(ctypes.c_int(status), ctypes.byref(name)) == 0 and name.value:
            return text(name.value)
    except AttributeError:  # drivers older than CUDA 6
        pass
    return f"CUDA error {status}"


if __name__ == "__main__":
    print_answer(answer)
