"""Rules about the device: its platform, compute capability or architecture."""

from __future__ import annotations

from attnctl.findings import Finding, met, unknown, unmet
from attnctl.requirements.rule import Rule, Subject
from attnctl.requirements.words import any_of

NAMES = {"cuda": "NVIDIA (CUDA)", "rocm": "AMD (ROCm)", "xpu": "Intel (XPU)", "cpu": "a CPU"}

CDNA3 = ("gfx94", "gfx95", "gfx125")
"""Matrix-core accelerators from the MI300 on, as architecture prefixes."""

RDNA4 = ("gfx120",)

Version = tuple[int, int]


def platform(*platforms: str) -> Rule:
    """The device is of one of these platforms."""
    wanted = any_of(NAMES[name] for name in platforms)

    def check(subject: Subject) -> Finding:
        found = NAMES[subject.platform]
        good = subject.platform in platforms
        return (met if good else unmet)("platform", wanted, found, subject.source("platform"))

    return Rule("platform", "machine", check, wanted=wanted, platforms=platforms)


def capability(
    at_least: Version | None = None,
    at_most: Version | None = None,
    majors: tuple[int, ...] = (),
    why: str = "",
) -> Rule:
    """On NVIDIA, the compute capability is in a range or of one of these majors."""
    span = f"compute capability {_capability_text(at_least, at_most, majors)}"
    wanted = span + (f" ({why})" if why else "")

    def check(subject: Subject) -> Finding | None:
        if subject.platform != "cuda" or subject.gpu is None:
            return None
        cc, source = subject.gpu.capability, subject.source("capability")
        if cc is None:
            return unknown("compute_capability", wanted, "not known", source, "attnctl probe")
        good = (
            (at_least is None or cc >= at_least)
            and (at_most is None or cc <= at_most)
            and (not majors or cc[0] in majors)
        )
        found = f"{cc[0]}.{cc[1]}" + ("" if good else _direction(cc, at_least, at_most))
        return (met if good else unmet)("compute_capability", wanted, found, source)

    return Rule("compute_capability", "machine", check, wanted=span, platforms=("cuda",))


def _capability_text(
    at_least: Version | None, at_most: Version | None, majors: tuple[int, ...]
) -> str:
    if majors:
        return any_of(f"{major}.x" for major in majors)
    low = "{}.{}".format(*at_least) if at_least else ""
    high = "{}.{}".format(*at_most) if at_most else ""
    if low and high:
        return f"{low} to {high}"
    return f"{low} or newer" if low else f"{high} or older"


def _direction(cc: Version, at_least: Version | None, at_most: Version | None) -> str:
    if at_least and cc < at_least:
        return ", too old"
    return ", too new" if at_most and cc > at_most else ""


def gfx(*archs: str, why: str = "") -> Rule:
    """On AMD, the architecture is one of these (prefixes: "gfx94" takes gfx940 to gfx942)."""
    span = any_of(f"{arch}x" for arch in archs)
    wanted = span + (f" ({why})" if why else "")

    def check(subject: Subject) -> Finding | None:
        if subject.platform != "rocm" or subject.gpu is None:
            return None
        arch, source = subject.gpu.arch, subject.source("arch")
        if not arch:
            return unknown("arch", wanted, "not known", source, "attnctl probe")
        return (met if arch.startswith(archs) else unmet)("arch", wanted, arch, source)

    return Rule("arch", "machine", check, wanted=span, platforms=("rocm",))


def isa(*features: str, why: str = "") -> Rule:
    """On a CPU, one of these instruction sets is usable."""
    wanted = any_of(features) + (f" ({why})" if why else "")

    def check(subject: Subject) -> Finding | None:
        if subject.platform != "cpu":
            return None
        cpu, source = subject.machine.cpu, subject.source("isa")
        usable = [feature for feature in features if feature in cpu.isa]
        if usable:
            return met("isa", wanted, ", ".join(usable), source)
        blocked = [
            f"{name}: {cpu.isa_unusable[name]}" for name in features if name in cpu.isa_unusable
        ]
        if not cpu.isa and not blocked:
            return unknown("isa", wanted, "not known", source, "attnctl probe")
        return unmet("isa", wanted, "; ".join(blocked) or "none of them", source)

    return Rule("isa", "machine", check, wanted=wanted, platforms=("cpu",))


def capability_of(subject: Subject) -> Version | None:
    """The compute capability of an NVIDIA device; None on others and where it is not known."""
    if subject.platform != "cuda" or subject.gpu is None:
        return None
    return subject.gpu.capability


def arch_of(subject: Subject) -> str:
    """The architecture of an AMD device; "" on others and where it is not known."""
    if subject.platform != "rocm" or subject.gpu is None:
        return ""
    return subject.gpu.arch or ""
