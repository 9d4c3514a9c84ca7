"""Asks the HIP runtime about every AMD GPU, by ctypes, without creating a stream or a context.

By hand: `python -m attnctl.probe.children.ask_hip`. Numbers of device attributes: enum
hipDeviceAttribute_t of hip_runtime_api.h; they have not moved since ROCm 5.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from typing import Any

from attnctl.probe.children.fields import field, open_library, print_answer, text

MASKS = (
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
ATTRIBUTES = {
    "integrated": 16,
    "multiprocessors": 63,
    "shared_memory_bytes": 74,
    "warp_size": 87,
}

# hipDeviceProp_t is under 2 KiB in every release; its layout changed in ROCm 6, so the target name
# is looked for behind the device name, which is first, and is the only text that begins with gfx
PROPERTIES_BYTES = 16_384
NAME_BYTES = 256
_TARGET = re.compile(rb"(gfx[0-9a-f]{3,5}(?::[a-z]+[+-])*)\0")


class HipError(Exception):
    """A HIP call that did not return hipSuccess."""


def answer() -> dict[str, Any]:
    """{"error": {"name", "text"}} where HIP finds no GPU or fails, else one entry per GPU.

    Visibility masks are lifted, so that masked GPUs are described too.
    """
    for name in MASKS:
        os.environ.pop(name, None)
    hip = open_library(_libraries())
    count = ctypes.c_int()
    status = hip.hipGetDeviceCount(ctypes.byref(count))
    if status:
        return {
            "error": {
                "name": _error_name(hip, status),
                "text": f"hipGetDeviceCount returned {status}",
            }
        }
    return {
        "version": field(lambda: _integer(hip, "hipRuntimeGetVersion")),
        "gpus": [_gpu(hip, index) for index in range(count.value)],
    }


def _libraries() -> Iterator[str]:
    """The system's library, ROCm's own folder, then the copies inside PyTorch and ROCm wheels."""
    sonames = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
    yield from sonames
    root = os.environ.get("ROCM_PATH") or "/opt/rocm"
    yield f"{root}/lib/libamdhip64.so"
    from importlib.util import find_spec

    for package, folder in (("torch", "lib"), ("_rocm_sdk_core", "lib")):
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            for soname in sonames:
                yield f"{place}/{folder}/{soname}"


def _gpu(hip: ctypes.CDLL, index: int) -> dict[str, Any]:
    device = ctypes.c_int(index)
    described: dict[str, Any] = {
        "name": field(lambda: _text(hip, "hipDeviceGetName", device)),
        "gfx": field(lambda: _target(hip, index)),
        "uuid": field(lambda: _uuid(hip, device)),
        "bus_id": field(lambda: _text(hip, "hipDeviceGetPCIBusId", device)),
        "memory_bytes": field(lambda: _size(hip, "hipDeviceTotalMem", device)),
    }
    for name, number in ATTRIBUTES.items():
        described[name] = _attribute(hip, number, device)
    return described


def _attribute(hip: ctypes.CDLL, number: int, device: ctypes.c_int) -> dict[str, Any]:
    return field(lambda: _integer(hip, "hipDeviceGetAttribute", ctypes.c_int(number), device))


def _target(hip: ctypes.CDLL, index: int) -> str:
    buffer = ctypes.create_string_buffer(PROPERTIES_BYTES)
    # the plain name is the old layout's entry point, kept for old programs
    function = getattr(hip, "hipGetDevicePropertiesR0600", None) or hip.hipGetDeviceProperties
    _check(hip, "hipGetDeviceProperties", function(buffer, ctypes.c_int(index)))
    match = _TARGET.search(buffer.raw, NAME_BYTES)
    if match is None:
        raise HipError("hipGetDeviceProperties: no target name in the answer")
    return text(match[1])


def _uuid(hip: ctypes.CDLL, device: ctypes.c_int) -> str:
    """The UUID that ROCR_VISIBLE_DEVICES takes: HIP gives its 16 hex digits as text."""
    raw = ctypes.create_string_buffer(16)
    _check(hip, "hipDeviceGetUuid", hip.hipDeviceGetUuid(raw, device))
    digits = text(raw.raw)
    if not re.fullmatch("[0-9a-f]{16}", digits):
        raise HipError("hipDeviceGetUuid: not 16 hex digits")
    return f"GPU-{digits}"


def _integer(hip: ctypes.CDLL, function: str, *args: Any) -> int:
    value = ctypes.c_int()
    _check(hip, function, getattr(hip, function)(ctypes.byref(value), *args))
    return value.value


def _size(hip: ctypes.CDLL, function: str, device: ctypes.c_int) -> int:
    value = ctypes.c_size_t()
    _check(hip, function, getattr(hip, function)(ctypes.byref(value), device))
    return value.value


def _text(hip: ctypes.CDLL, function: str, device: ctypes.c_int) -> str:
    buffer = ctypes.create_string_buffer(NAME_BYTES)
    _check(hip, function, getattr(hip, function)(buffer, ctypes.c_int(len(buffer)), device))
    return text(buffer.value)


def _check(hip: ctypes.CDLL, function: str, status: int) -> None:
    if status:
        raise HipError(f"{function}: {_error_name(hip, status)}")


def _error_name(hip: ctypes.CDLL, status: int) -> str:
    try:
        hip.hipGetErrorName.restype = ctypes.c_char_p
        name = hip.hipGetErrorName(ctypes.c_int(status))
    except AttributeError:
        name = None
    return text(name) if name else f"hipError {status}"


if __name__ == "__main__":
    print_answer(answer)
