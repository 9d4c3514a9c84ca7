"""Facts that follow from an architecture's number, for where the library does not answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# FP32 cores of one streaming multiprocessor, by compute capability:
# CUDA C++ Programming Guide, "Compute Capabilities", arithmetic throughput tables
CORES_PER_SM: Mapping[tuple[int, int], int] = MappingProxyType(
    {
        (6, 0): 64,
        (6, 1): 128,
        (6, 2): 128,
        (7, 0): 64,
        (7, 2): 64,
        (7, 5): 64,
        (8, 0): 64,
        (8, 6): 128,
        (8, 7): 128,
        (8, 9): 128,
        (9, 0): 128,
        (10, 0): 128,
        (10, 3): 128,
        (11, 0): 128,
        (12, 0): 128,
        (12, 1): 128,
    }
)

# most shared memory of one block, after opting in; the same guide, technical specifications
SHARED_MEMORY_BYTES: Mapping[tuple[int, int], int] = MappingProxyType(
    {
        (7, 0): 98_304,
        (7, 2): 98_304,
        (7, 5): 65_536,
        (8, 0): 166_912,
        (8, 6): 101_376,
        (8, 7): 166_912,
        (8, 9): 101_376,
        (9, 0): 232_448,
        (10, 0): 232_448,
        (10, 3): 232_448,
        (11, 0): 232_448,
        (12, 0): 101_376,
        (12, 1): 101_376,
    }
)

# gfx targets of processors with a GPU inside: LLVM's AMDGPU usage guide, "Processors", column APU
APU_TARGETS = frozenset(
    {
        "gfx902",
        "gfx909",
        "gfx90c",
        "gfx1013",
        "gfx1033",
        "gfx1035",
        "gfx1036",
        "gfx1037",
        "gfx1103",
        "gfx1150",
        "gfx1151",
        "gfx1152",
        "gfx1153",
    }
)

# MI300A shares its gfx942 with the discrete MI300X: only the PCI id tells
APU_PCI_IDS = frozenset({"1002:74a0"})

# transfers per pin and tick of the clock that the kernel reports for HBM: two for HBM2e; four for
# HBM3, whose reported clock is half of its own (MI300X: 1300 MHz x 4 x 8192 bit = 5325 GB/s)
HBM_TRANSFERS: Mapping[str, int] = MappingProxyType(
    {"gfx906": 2, "gfx908": 2, "gfx90a": 2, "gfx940": 4, "gfx941": 4, "gfx942": 4, "gfx950": 4}
)


def gfx_name(target_version: int) -> str | None:
    """The target of KFD's `gfx_target_version`: 90402 is "gfx942", 90010 is "gfx90a".

    major * 10000 + minor * 100 + stepping, the stepping printed in hex. None for 0 (a CPU node).
    """
    major, rest = divmod(target_version, 10_000)
    minor, stepping = divmod(rest, 100)
    if major == 0 or minor > 15 or stepping > 15:
        return None
    return f"gfx{major}{minor:x}{stepping:x}"


def counts_work_group_processors(gfx: str) -> bool:
    """Whether HIP counts pairs of compute units as one multiprocessor: RDNA, gfx10 and later."""
    digits = gfx.removeprefix("gfx")
    return len(digits) == 4 and digits.isalnum() and digits[0] == "1"
