"""A stand-in for nvidia-ml-py: one GPU in MIG mode, and one that refuses what it can."""

# ruff: noqa: N801, N802, N818  (the names are NVIDIA's)

import os


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


class NVMLError_InvalidArgument(NVMLError):
    pass


class NVMLError_LibRmVersionMismatch(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


NVML_CLOCK_MEM = 2
NVML_NVLINK_MAX_LINKS = 18


class Info:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def nvmlInit():
    error = os.environ.get("FAKE_NVML")
    if error:
        raise globals()[f"NVMLError_{error}"](error)


def nvmlSystemGetDriverVersion():
    return b"580.82.07"


def nvmlSystemGetCudaDriverVersion():
    return 13000


def nvmlDeviceGetCount():
    return 3


def nvmlDeviceGetHandleByIndex(index):
    if index == 2:
        raise NVMLError_GpuIsLost("GPU is lost")
    return index


def nvmlDeviceGetName(handle):
    return b"NVIDIA H200" if handle == 0 else "NVIDIA H200 MIG 3g.71gb"


def nvmlDeviceGetUUID(handle):
    return {0: "GPU-a", 1: "GPU-b", "instance": "MIG-c"}[handle]


def nvmlDeviceGetPciInfo(handle):
    return Info(busId=b"00000000:1B:00.0", pciDeviceId=0x233510DE)


def nvmlDeviceGetCudaComputeCapability(handle):
    return (9, 0)


def nvmlDeviceGetNumGpuCores(handle):
    return 16896


def nvmlDeviceGetMemoryInfo(handle):
    if handle == 1:
        raise NVMLError_NotSupported("Not Supported")
    return Info(total=1000, free=900)


def nvmlDeviceGetMemoryBusWidth(handle):
    return 6144


def nvmlDeviceGetMaxClockInfo(handle, clock):
    return 3201 if clock == NVML_CLOCK_MEM else 1


def nvmlDeviceGetNvLinkState(handle, link):
    if handle == 1:
        raise NVMLError_NotSupported("Not Supported")
    if link > 5:
        raise NVMLError_InvalidArgument("Invalid Argument")
    return int(link < 4)


def nvmlDeviceGetComputeMode(handle):
    return 3


def nvmlDeviceGetMigMode(handle):
    if handle == 1:
        raise NVMLError_NotSupported("Not Supported")
    return [1, 1]


def nvmlDeviceGetMaxMigDeviceCount(handle):
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle, index):
    if index != 3:
        raise NVMLError_NotFound("Not Found")
    return "instance"


def nvmlDeviceGetAttributes(handle):
    return Info(multiprocessorCount=60)
