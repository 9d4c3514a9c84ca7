"""Which instructions compiled code may use, from what the kernel advertises. Pure functions.

The kernel clears a flag in /proc/cpuinfo when it does not save the state that belongs to it (XCR0),
so a flag there means that the operating system goes along; AMX alone needs a permission on top.
Nothing here looks at a model name: hypervisors hide features that the model has.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

# spellings are those of /proc/cpuinfo; kept in the order in which they are shown
_X86 = (
    "sse4_2 avx f16c fma avx2 avx_vnni avx_vnni_int8 avx_ne_convert avx512f avx512cd avx512bw "
    "avx512dq avx512vl avx512ifma avx512vbmi avx512_vbmi2 avx512_vnni avx512_bitalg "
    "avx512_vpopcntdq avx512_bf16 avx512_fp16 amx_tile amx_int8 amx_bf16 amx_fp16 amx_complex"
)
_ARM = "asimd fphp asimdhp asimddp asimdfhm bf16 i8mm sve svebf16 svei8mm sve2 sme sme2"
_RISCV = "v zfh zvfh zvfhmin zvfbfmin zvfbfwma zba zbb zbs"
_OTHER = "vx vxd vxe vxe2 altivec vsx"

# x86-64 psABI, "Micro-architecture levels"; names as in /proc/cpuinfo (pni is SSE3, abm is LZCNT)
_X86_LEVELS = (
    ("x86-64-v1", "cmov cx8 fpu fxsr mmx syscall sse sse2"),
    ("x86-64-v2", "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"),
    ("x86-64-v3", "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"),
    ("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl"),
)
# Arm ARM, "Armv8 architecture extensions": the features that Linux names and each step makes
# mandatory; level names as archspec spells them
_ARM_LEVELS = (
    ("armv8a", "asimd"),
    ("armv8.1a", "atomics asimdrdm crc32"),
    ("armv8.2a", "dcpop"),
    ("armv8.3a", "jscvt fcma lrcpc"),
    ("armv8.4a", "asimddp uscat ilrcpc flagm dit"),
    ("armv8.5a", "sb flagm2 frint"),
    ("armv8.6a", "bf16 i8mm"),
)
_ARM_V9 = ("armv9.0a", "sve2")

# asm/hwcap.h of arm64: bits of AT_HWCAP and AT_HWCAP2 for the names that matter here
_ARM_HWCAP = {"asimd": 1, "fphp": 9, "asimdhp": 10, "asimddp": 20, "sve": 22, "asimdfhm": 23}
_ARM_HWCAP2 = {"sve2": 1, "svei8mm": 9, "svebf16": 12, "i8mm": 13, "bf16": 14, "sme": 23}


class Amx(msgspec.Struct, frozen=True):
    """What the kernel and the processor said about tiles.

    permission: "ok", an errno name, or "" where nobody could ask; palettes: from CPUID leaf 0x1D,
    None where that could not be read. reason: why one of them is missing.
    """

    permission: str = ""
    palettes: int | None = None
    reason: str = ""


class Isa(msgspec.Struct, frozen=True):
    """usable: names in the order of the tables above; unusable: advertised name -> reason."""

    usable: tuple[str, ...] = ()
    unusable: dict[str, str] = {}


def x86(flags: Iterable[str], amx: Amx | None = None) -> Isa:
    """The usable features of an x86-64 processor. amx None: nobody asked for the permission."""
    flags = frozenset(flags)
    tiles = amx_problem(amx)
    unusable = {}
    for name in _X86.split():
        if name not in flags:
            continue
        if name.startswith("avx512") and "avx512f" not in flags:
            unusable[name] = "avx512f, which it builds on, is not in the flags"
        elif name.startswith("amx") and "amx_tile" not in flags:
            unusable[name] = "amx_tile, which it builds on, is not in the flags"
        elif name.startswith("amx") and tiles:
            unusable[name] = tiles
    usable = tuple(name for name in _X86.split() if name in flags and name not in unusable)
    return Isa(usable, unusable)


def amx_problem(amx: Amx | None) -> str:
    """Why tiles cannot be used although they are advertised; "" where they can."""
    if amx is None or not amx.permission:
        return (amx and amx.reason) or "the tile permission was not asked for"
    if amx.permission != "ok":
        return f"the kernel refuses the tile permission (arch_prctl: {amx.permission})"
    if amx.palettes is None:
        return f"the tile palettes could not be read from CPUID: {amx.reason}"
    if amx.palettes < 1:
        return "CPUID leaf 0x1D has no tile palette: the hypervisor passes AMX on by half"
    return ""


def arm(features: Iterable[str]) -> Isa:
    """The usable features of an AArch64 processor; the kernel lists only what it supports.

    "neon" is written beside asimd, for it is the name that people and compilers know.
    """
    features = frozenset(features)
    usable = [name for name in _ARM.split() if name in features]
    return Isa(tuple(["neon"] * ("asimd" in features) + usable))


def arm_features_of_hwcap(hwcap: int, hwcap2: int) -> frozenset[str]:
    """The features in the words that the kernel gives each process."""
    found = {name for name, bit in _ARM_HWCAP.items() if hwcap >> bit & 1}
    return frozenset(found | {name for name, bit in _ARM_HWCAP2.items() if hwcap2 >> bit & 1})


def riscv_extensions(isa: str) -> frozenset[str]:
    """The extensions in a RISC-V ISA string ("rv64imafdcv_zicsr_zvfh"), "g" spelled out."""
    head, *rest = isa.strip().lower().split("_")
    letters = head[4:] if head[:4] in ("rv32", "rv64") else ""
    # multi-letter names may follow the single letters without an underscore
    for index, letter in enumerate(letters):
        if letter in "zsx" and len(letters) > index + 1:
            rest.append(letters[index:])
            letters = letters[:index]
            break
    return frozenset(letters.replace("g", "imafd")) | frozenset(rest)


def riscv(extensions: Iterable[str]) -> Isa:
    extensions = frozenset(extensions)
    return Isa(tuple(name for name in _RISCV.split() if name in extensions))


def other(features: Iterable[str]) -> Isa:
    """The vector facilities of s390x and POWER, as far as the kernel names them."""
    features = frozenset(features)
    return Isa(tuple(name for name in _OTHER.split() if name in features))


def x86_level(flags: Iterable[str]) -> str | None:
    return _level(_X86_LEVELS, frozenset(flags))


def arm_level(features: Iterable[str]) -> str | None:
    """The architecture step as archspec names it: "armv8.4a", "armv9.0a"."""
    features = frozenset(features)
    level = _level(_ARM_LEVELS, features)
    name, needed = _ARM_V9
    return name if needed in features and level not in (None, "armv8a") else level


def riscv_level(extensions: Iterable[str]) -> str | None:
    """ "rv64gc" or "rv64gcv"; None below that."""
    extensions = frozenset(extensions)
    if not extensions >= frozenset("imafdc"):
        return None
    return "rv64gc" + "v" * ("v" in extensions)


def _level(steps: tuple[tuple[str, str], ...], features: frozenset[str]) -> str | None:
    """The highest step whose features, and those of all steps below it, are there."""
    reached = None
    for name, needed in steps:
        if not features.issuperset(needed.split()):
            break
        reached = name
    return reached
