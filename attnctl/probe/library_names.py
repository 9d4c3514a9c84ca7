"""Which shared libraries are looked for, and what the name of a file tells of one."""

from __future__ import annotations

import re

WATCHED = (
    # NVIDIA: the driver's two, then the toolkit's
    *("libcuda", "libnvidia-ml", "libcudart", "libnvrtc", "libnvJitLink", "libcupti"),
    *("libcublas", "libcublasLt", "libcudnn", "libcusparse", "libcusparseLt", "libnccl"),
    *("libnvshmem_host",),
    # AMD
    *("libamdhip64", "libhsa-runtime64", "libamd_smi", "libhipblas", "libhipblaslt"),
    *("librocblas", "librccl", "libMIOpen"),
    # Intel
    *("libze_loader", "libsycl", "libOpenCL", "libur_loader", "libccl"),
    # processors: two copies of OpenMP in one process fight for the cores
    *("libgomp", "libiomp5", "libomp"),
    *("libtorch_cpu", "libstdc++"),
)
"""Names without `.so`. Sources: what torch's, vLLM's and their dependencies' wheels link to."""

_NAME = re.compile(
    rf"({'|'.join(map(re.escape, WATCHED))})"
    # auditwheel adds eight digits of a hash
    r"(?:-[0-9a-f]{6,})?\.so((?:\.\d+)*)"
)


def library_of(name: str) -> str:
    """The library that a file of this name is a copy of; "" for none that is looked for."""
    match = _NAME.fullmatch(name)
    return match[1] if match else ""


def version_of(path: str) -> str:
    """What the file's name says after `.so`: "12.8.90"; "" for nothing."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    return match[2].lstrip(".") if match else ""


def is_soname(name: str) -> bool:
    """Whether programs ask for a library by this name: `libX.so` or `libX.so.N`."""
    match = _NAME.fullmatch(name)
    if match is None:
        return False
    return match[2].count(".") <= 1 and name.startswith(f"{match[1]}.so")
