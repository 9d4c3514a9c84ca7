"""Asks the kernel for the AMX tile state, and the processor which tile palettes it has.

Linux grants the tile data area per process and only on request: Documentation/arch/x86/xstate.rst.
Hypervisors have been seen to advertise AMX with no palette in CPUID leaf 0x1D; tiles fault there.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import sys
from typing import Any

from attnctl.probe.host import HostError

# arch/x86/include/uapi/asm/prctl.h and asm/unistd_64.h
SYS_ARCH_PRCTL = 158
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18

TILE_LEAF = 0x1D

# cpuid(edi = leaf, esi = subleaf, rdx = where to put eax, ebx, ecx, edx), System V calling order
_CPUID = bytes.fromhex(
    "53"  # push rbx
    "4989d0"  # mov r8, rdx
    "89f8 89f1"  # mov eax, edi; mov ecx, esi
    "0fa2"  # cpuid
    "418900 41895804 41894808 4189500c"  # mov [r8 + 0, 4, 8, 12], eax, ebx, ecx, edx
    "5b c3"  # pop rbx; ret
)


def answer() -> dict[str, Any]:
    """{"permission": "ok" or an errno name, "palettes": int or None, "reason": why None}."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise HostError("absent", "the tile permission exists on 64-bit Linux only")
    permission = _permission()
    try:
        return {"permission": permission, "palettes": palettes(), "reason": ""}
    except OSError as error:
        return {"permission": permission, "palettes": None, "reason": str(error)}


def palettes() -> int:
    """The highest tile palette that CPUID names, 0 where there is none."""
    if cpuid(0, 0)[0] < TILE_LEAF:
        return 0
    return cpuid(TILE_LEAF, 0)[0]


def cpuid(leaf: int, subleaf: int) -> tuple[int, int, int, int]:
    """Registers eax, ebx, ecx, edx of one CPUID leaf; OSError where code may not be mapped."""
    pages = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    pages.write(_CPUID)
    registers = (ctypes.c_uint32 * 4)()
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    call = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(address)
    call(leaf, subleaf, ctypes.addressof(registers))
    return registers[0], registers[1], registers[2], registers[3]


def _permission() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    request = (ctypes.c_long(SYS_ARCH_PRCTL), ctypes.c_long(ARCH_REQ_XCOMP_PERM))
    if libc.syscall(*request, ctypes.c_long(XFEATURE_XTILEDATA)) == 0:
        return "ok"
    return errno.errorcode.get(ctypes.get_errno(), f"errno {ctypes.get_errno()}")
