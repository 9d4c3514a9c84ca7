"""Asks Level Zero about every Intel GPU, by ctypes, without creating a context.

By hand: `python -m attnctl.probe.children.ask_level_zero`. Structures, structure types and flags:
ze_api.h of the Level Zero specification, API 1.0; the PCI address: its extension of 1.5.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_char, c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any

from attnctl.probe.children.fields import field, open_library, print_answer, text

LIBRARIES = ("libze_loader.so.1", "libze_loader.so")

GPU_ONLY = 1
TYPE_GPU = 1
INTEGRATED = 1
FP16, FP64 = 1, 2
NO_GPU = 0x78000001  # ZE_RESULT_ERROR_UNINITIALIZED: no driver found a device

_HEAD: list[Any] = [("stype", c_uint32), ("next", c_void_p)]


class ZeError(Exception):
    """A Level Zero call that did not return ZE_RESULT_SUCCESS."""


class DeviceProperties(ctypes.Structure):
    STYPE = 0x3
    _fields_ = [
        *_HEAD,
        ("type", c_uint32),
        ("vendor_id", c_uint32),
        ("device_id", c_uint32),
        ("flags", c_uint32),
        ("subdevice_id", c_uint32),
        ("core_clock_rate", c_uint32),
        ("max_mem_alloc_size", c_uint64),
        ("max_hardware_contexts", c_uint32),
        ("max_command_queue_priority", c_uint32),
        ("threads_per_eu", c_uint32),
        ("eu_simd_width", c_uint32),
        ("eus_per_subslice", c_uint32),
        ("subslices_per_slice", c_uint32),
        ("slices", c_uint32),
        ("timer_resolution", c_uint64),
        ("timestamp_valid_bits", c_uint32),
        ("kernel_timestamp_valid_bits", c_uint32),
        ("uuid", c_uint8 * 16),
        ("name", c_char * 256),
    ]


class ComputeProperties(ctypes.Structure):
    STYPE = 0x4
    _fields_ = [
        *_HEAD,
        ("max_total_group_size", c_uint32),
        ("max_group_size", c_uint32 * 3),
        ("max_group_count", c_uint32 * 3),
        ("max_shared_local_memory", c_uint32),
        ("subgroup_size_count", c_uint32),
        ("subgroup_sizes", c_uint32 * 8),
    ]


class ModuleProperties(ctypes.Structure):
    STYPE = 0x5
    _fields_ = [
        *_HEAD,
        ("spirv_version", c_uint32),
        ("flags", c_uint32),
        ("fp16_flags", c_uint32),
        ("fp32_flags", c_uint32),
        ("fp64_flags", c_uint32),
        ("max_arguments_size", c_uint32),
        ("printf_buffer_size", c_uint32),
        ("native_kernel", c_uint8 * 16),
    ]


class MemoryProperties(ctypes.Structure):
    STYPE = 0x7
    _fields_ = [
        *_HEAD,
        ("flags", c_uint32),
        ("max_clock_rate", c_uint32),
        ("max_bus_width", c_uint32),
        ("total_size", c_uint64),
        ("name", c_char * 256),
    ]


class PciProperties(ctypes.Structure):
    STYPE = 0x10008
    _fields_ = [
        *_HEAD,
        ("address", c_uint32 * 4),
        ("generation", c_int32),
        ("width", c_int32),
        ("max_bandwidth", c_int64),
    ]


def answer() -> dict[str, Any]:
    """{"error": {"name", "text"}} where zeInit fails, else the API version and one entry per GPU.

    The affinity mask is lifted, so that masked GPUs are described too; the device hierarchy stays
    as the user has it, so that a tile is a device of its own where programs see it as one.
    """
    os.environ.pop("ZE_AFFINITY_MASK", None)
    ze = open_library(LIBRARIES)
    status = ze.zeInit(c_uint32(GPU_ONLY)) & 0xFFFFFFFF
    if status:
        name = "no GPU or no driver" if status == NO_GPU else f"0x{status:08x}"
        return {"error": {"name": name, "text": f"zeInit returned 0x{status:08x}"}}
    drivers = _handles(ze, "zeDriverGet")
    devices = [device for driver in drivers for device in _handles(ze, "zeDeviceGet", driver)]
    gpus = [_gpu(ze, device) for device in devices]
    return {
        "version": field(lambda: _version(ze, drivers[0])) if drivers else {},
        "gpus": [gpu for gpu in gpus if gpu is not None],
    }


def _version(ze: ctypes.CDLL, driver: c_void_p) -> str:
    value = c_uint32()
    _check("zeDriverGetApiVersion", ze.zeDriverGetApiVersion(driver, ctypes.byref(value)))
    return f"{value.value >> 16}.{value.value & 0xFFFF}"


def _gpu(ze: ctypes.CDLL, device: c_void_p) -> dict[str, Any] | None:
    about = _ask(ze, "zeDeviceGetProperties", device, DeviceProperties())
    if about.type != TYPE_GPU:
        return None
    subslices = about.slices * about.subslices_per_slice
    return {
        "name": {"value": text(about.name)},
        "uuid": {"value": _dashed(bytes(about.uuid).hex())},
        "bus_id": field(lambda: _bus_id(ze, device)),
        "pci_id": {"value": f"{about.vendor_id:04x}:{about.device_id:04x}"},
        "units": {"value": subslices},
        "execution_units": {"value": subslices * about.eus_per_subslice},
        "integrated": {"value": bool(about.flags & INTEGRATED)},
        "tiles": field(lambda: len(_handles(ze, "zeDeviceGetSubDevices", device))),
        "subgroup_sizes": field(lambda: _subgroup_sizes(ze, device)),
        "shared_memory_bytes": field(lambda: _compute(ze, device).max_shared_local_memory),
        "memory_bytes": field(lambda: _memory_bytes(ze, device)),
        "fp16": field(lambda: bool(_module(ze, device).flags & FP16)),
        "fp64": field(lambda: bool(_module(ze, device).flags & FP64)),
    }


def _dashed(digits: str) -> str:
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts)


def _compute(ze: ctypes.CDLL, device: c_void_p) -> Any:
    return _ask(ze, "zeDeviceGetComputeProperties", device, ComputeProperties())


def _module(ze: ctypes.CDLL, device: c_void_p) -> Any:
    return _ask(ze, "zeDeviceGetModuleProperties", device, ModuleProperties())


def _subgroup_sizes(ze: ctypes.CDLL, device: c_void_p) -> list[int]:
    about = _compute(ze, device)
    return list(about.subgroup_sizes)[: min(about.subgroup_size_count, 8)]


def _bus_id(ze: ctypes.CDLL, device: c_void_p) -> str:
    about = _ask(ze, "zeDevicePciGetPropertiesExt", device, PciProperties())
    domain, bus, slot, function = about.address
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"


def _memory_bytes(ze: ctypes.CDLL, device: c_void_p) -> int:
    count = c_uint32()
    function = ze.zeDeviceGetMemoryProperties
    _check("zeDeviceGetMemoryProperties", function(device, ctypes.byref(count), None))
    pools = (MemoryProperties * count.value)()
    for pool in pools:
        pool.stype = MemoryProperties.STYPE
    _check("zeDeviceGetMemoryProperties", function(device, ctypes.byref(count), pools))
    return sum(pool.total_size for pool in pools)


def _handles(ze: ctypes.CDLL, function: str, *owner: c_void_p) -> list[c_void_p]:
    """The handles of a call that is asked first for their number."""
    count = c_uint32()
    call = getattr(ze, function)
    _check(function, call(*owner, ctypes.byref(count), None))
    if not count.value:
        return []
    handles = (c_void_p * count.value)()
    _check(function, call(*owner, ctypes.byref(count), handles))
    return [c_void_p(handle) for handle in handles[: count.value]]


def _ask(ze: ctypes.CDLL, function: str, device: c_void_p, about: Any) -> Any:
    about.stype = about.STYPE
    _check(function, getattr(ze, function)(device, ctypes.byref(about)))
    return about


def _check(function: str, status: int) -> None:
    if status:
        raise ZeError(f"{function} returned 0x{status & 0xFFFFFFFF:08x}")


if __name__ == "__main__":
    print_answer(answer)
