"""The name of a processor's design, for people and for matching profiles. Never used to decide ISA.

Names are archspec's where it has one. Sources: Linux arch/x86/kernel/cpu/amd.c (model ranges of the
Zen generations), arch/x86/include/asm/intel-family.h, arch/arm64/include/asm/cputype.h.
"""

from __future__ import annotations

from attnctl.probe.cpuinfo import Block

X86_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel", "HygonGenuine": "Hygon"}
ARM_IMPLEMENTERS = {
    0x41: "ARM",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "Ampere",
    0x51: "Qualcomm",
    0x61: "Apple",
    0x6D: "Microsoft",
    0xC0: "Ampere",
}

# family -> ranges of models, both ends included
_ZEN = {
    0x17: (
        (0x00, 0x2F, "zen"),
        (0x30, 0x4F, "zen2"),
        (0x50, 0x5F, "zen"),
        (0x60, 0x7F, "zen2"),
        (0x90, 0x91, "zen2"),
        (0xA0, 0xAF, "zen2"),
    ),
    0x19: (
        (0x00, 0x0F, "zen3"),
        (0x10, 0x1F, "zen4"),
        (0x20, 0x5F, "zen3"),
        (0x60, 0xAF, "zen4"),
    ),
    0x1A: (
        (0x00, 0x2F, "zen5"),
        (0x40, 0x4F, "zen5"),
        (0x50, 0x5F, "zen6"),
        (0x60, 0x7F, "zen5"),
        (0x80, 0xAF, "zen6"),
        (0xC0, 0xCF, "zen6"),
    ),
}
# models of family 6
_INTEL = {
    "haswell": (0x3C, 0x3F, 0x45, 0x46),
    "broadwell": (0x3D, 0x47, 0x4F, 0x56),
    "skylake": (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6),
    "cannonlake": (0x66,),
    "icelake": (0x6A, 0x6C, 0x7D, 0x7E),
    "tigerlake": (0x8C, 0x8D),
    "rocketlake": (0xA7,),
    "alderlake": (0x97, 0x9A),
    "raptorlake": (0xB7, 0xBA, 0xBF),
    "meteorlake": (0xAA, 0xAC),
    "arrowlake": (0xC5, 0xC6, 0xB5),
    "lunarlake": (0xBD,),
    "sapphirerapids": (0x8F,),
    "emeraldrapids": (0xCF,),
    "graniterapids": (0xAD, 0xAE),
    "sierraforest": (0xAF,),
    "clearwaterforest": (0xDD,),
    "mic_knl": (0x57, 0x85),
}
# (implementer, part)
_ARM = {
    (0x41, 0xD03): "cortex_a53",
    (0x41, 0xD05): "cortex_a55",
    (0x41, 0xD07): "cortex_a57",
    (0x41, 0xD08): "cortex_a72",
    (0x41, 0xD09): "cortex_a73",
    (0x41, 0xD0A): "cortex_a75",
    (0x41, 0xD0B): "cortex_a76",
    (0x41, 0xD0C): "neoverse_n1",
    (0x41, 0xD40): "neoverse_v1",
    (0x41, 0xD41): "cortex_a78",
    (0x41, 0xD42): "cortex_a78ae",
    (0x41, 0xD46): "cortex_a510",
    (0x41, 0xD47): "cortex_a710",
    (0x41, 0xD49): "neoverse_n2",
    (0x41, 0xD4F): "neoverse_v2",
    (0x41, 0xD80): "cortex_a520",
    (0x41, 0xD81): "cortex_a720",
    (0x41, 0xD83): "neoverse_v3ae",
    (0x41, 0xD84): "neoverse_v3",
    (0x41, 0xD85): "cortex_x925",
    (0x41, 0xD87): "cortex_a725",
    (0x41, 0xD8E): "neoverse_n3",
    (0x46, 0x001): "a64fx",
    (0x48, 0xD01): "tsv110",
    (0x4E, 0x004): "carmel",
    (0x51, 0x001): "oryon",
    (0xC0, 0xAC3): "ampere1",
    (0xC0, 0xAC4): "ampere1a",
}
_APPLE_M1, _APPLE_M2 = range(0x022, 0x02A), range(0x032, 0x03A)


def x86(record: Block) -> str | None:
    """The design of one x86 processor; None where the tables do not have it."""
    family, model = _number(record.get("cpu family")), _number(record.get("model"))
    stepping = _number(record.get("stepping"))
    if record.get("vendor_id") == "AuthenticAMD":
        ranges = _ZEN.get(family, ())
        return next((name for low, high, name in ranges if low <= model <= high), None)
    if record.get("vendor_id") == "GenuineIntel" and family == 6:
        if model == 0x55:
            return _skylake_server(stepping)
        return next((name for name, models in _INTEL.items() if model in models), None)
    return None


def arm(record: Block) -> str | None:
    """The design of one Arm processor; None where the tables do not have it."""
    implementer = _number(record.get("cpu implementer"))
    part = _number(record.get("cpu part"))
    if implementer == 0x61:
        return "m1" if part in _APPLE_M1 else "m2" if part in _APPLE_M2 else None
    return _ARM.get((implementer, part))


def arm_vendor(record: Block) -> str | None:
    return ARM_IMPLEMENTERS.get(_number(record.get("cpu implementer")))


def _skylake_server(stepping: int) -> str:
    # three designs share model 0x55
    if stepping >= 10:
        return "cooperlake"
    return "cascadelake" if stepping >= 5 else "skylake_avx512"


def _number(text: str | None) -> int:
    """A number in decimal or 0x form; -1 where there is none."""
    try:
        return int(text or "", 0)
    except ValueError:
        return -1
