"""The rules that hinge on which FlashAttention version serves a layer."""

from __future__ import annotations

from attnctl.findings import Finding, met, unknown, unmet
from attnctl.requirements.devices import capability_of
from attnctl.requirements.flash_versions import (
    CARRIER,
    FA2_PAGE,
    PACKAGES,
    flash_block_multiple,
    flash_version,
    has_flash,
    is_carried,
    suitable_versions,
)
from attnctl.requirements.layers import PLAIN_KV, block_size, cache_fix
from attnctl.requirements.packages import INSTALL, installed, package_source
from attnctl.requirements.rule import Rule, Subject
from attnctl.requirements.words import any_of, both


def flash_block_size(multiple: int) -> Rule:
    """A block size that the user fixed is a multiple of what the installed FlashAttention takes."""
    wanted = f"a multiple of {multiple} ({FA2_PAGE} with the flash-attn package's FA2)"
    usual = block_size(multiple_of=multiple)

    def check(subject: Subject) -> Finding | None:
        needed = flash_block_multiple(subject)
        if needed is None:
            return usual.check(subject)
        return block_size(multiple_of=needed).check(subject)

    return Rule("block_size", "both", check, tuple(PACKAGES.values()), wanted, ("cuda",))


def flash_kernel(versions: tuple[int, ...] = (2, 3, 4)) -> Rule:
    """A FlashAttention version that takes this layer is installed for this device."""
    wanted = f"FlashAttention {any_of(versions)}, as this device and layer need"

    def check(subject: Subject) -> Finding | None:
        cc = capability_of(subject)
        if cc is None:
            return None
        version = flash_version(subject)
        if version is not None:
            return met("flash_version", wanted, f"FA{version}", _package_source(subject, version))
        suitable = suitable_versions(cc, subject.layer)
        if not suitable:
            size = f" and head size {subject.layer.head_size}" if subject.layer.head_size else ""
            found = f"none for compute capability {cc[0]}.{cc[1]}{size}"
            source = both(subject.source("capability"), subject.layer.source("head_size"))
            return unmet("flash_version", wanted, found, source)
        fix = INSTALL[PACKAGES[suitable[0]]]
        if not subject.machine.packages:
            return unknown("flash_version", wanted, "packages not probed", "", fix)
        missing = " or ".join(f"FA{v}" for v in suitable)
        source = _package_source(subject, *suitable)
        return unmet("flash_version", wanted, f"{missing} not installed", source, fix)

    names = (*(PACKAGES[version] for version in versions), CARRIER)
    return Rule("flash_version", "both", check, names, wanted, ("cuda",))


def flash_head_size() -> Rule:
    """Head sizes are multiples of 8, up to 256, or 512 on 9.x where FA4 is there, and on Intel."""
    limits = "a multiple of 8, at most 256 (512 with FA4 on 9.x)"

    def check(subject: Subject) -> Finding | None:
        layer, cc = subject.layer, capability_of(subject)
        if layer.head_size is None:
            return None
        hopper = cc is not None and cc[0] == 9 and has_flash(subject, 4)
        limit = 512 if hopper or subject.platform == "xpu" else 256
        wanted = f"a multiple of 8, at most {limit}" if limit == 512 else limits
        sizes = sorted({layer.head_size, layer.head_size_v or layer.head_size}, reverse=True)
        good = all(size % 8 == 0 and size <= limit for size in sizes)
        found = " and ".join(map(str, sizes))
        return (met if good else unmet)("head_size", wanted, found, layer.source("head_size"))

    return Rule("head_size", "both", check, wanted=limits)


def flash_kv_cache_dtype() -> Rule:
    """FP8 (e4m3) caches need FA3 on 9.x, FA4 on 10.x, or Intel's kernels; e5m2 is in no version."""
    wanted = "auto, float16, bfloat16, or fp8 (e4m3) with FA3 on 9.x or FA4 on 10.x"

    def check(subject: Subject) -> Finding | None:
        layer, cc = subject.layer, capability_of(subject)
        if not layer.group.needs_kv_cache:
            return None
        found, source = layer.kv_cache_dtype, layer.kv_cache_dtype_source
        if found in PLAIN_KV or (found in ("fp8", "fp8_e4m3") and _takes_fp8(subject)):
            return met("kv_cache_dtype", wanted, found, source)
        version = flash_version(subject)
        here = "" if cc is None else f" on {cc[0]}.{cc[1]}"
        here += f" with FA{version}" if version else ""
        source = both(source, _source_here(subject, version)) if here else source
        return unmet("kv_cache_dtype", wanted, found + here, source, cache_fix(layer))

    return Rule("kv_cache_dtype", "both", check, wanted=wanted)


def _takes_fp8(subject: Subject) -> bool:
    cc = capability_of(subject)
    if cc is None:
        return subject.platform == "xpu"
    version = flash_version(subject)
    if cc[0] == 9:
        return version == 3 or (version == 4 and subject.layer.head_size == 512)
    return cc[0] == 10 and version == 4


def flash_sinks() -> Rule:
    """Attention sinks need FA3 or FA4, and compute capability 9.0; Intel's kernels have them."""
    wanted = "FA3 or FA4 and compute capability 9.0 or newer for attention sinks"

    def check(subject: Subject) -> Finding | None:
        layer, cc = subject.layer, capability_of(subject)
        if not layer.group.sinks:
            return None
        if subject.platform == "xpu":
            source = subject.source("platform")
            return met("sinks", wanted, "Intel's kernels have them", source)
        version = flash_version(subject)
        good = cc is not None and cc >= (9, 0) and version in (3, 4)
        source = _source_here(subject, version)
        if version == 3 and not is_carried(subject, 3):
            # FA3's own package has no argument for them
            fix = INSTALL.get(CARRIER, "")
            return unmet("sinks", wanted, "FA3 of flash_attn_3, which has none", source, fix)
        return (met if good else unmet)("sinks", wanted, _here(subject, version), source)

    return Rule("sinks", "both", check, wanted="with FA3 or FA4 on 9.0 or newer")


def flash_prefix_lm() -> Rule:
    """Bidirectional prefixes need FA4, and on 9.0 a cache that is not FP8."""
    wanted = "FA4, and no FP8 cache on 9.0, for bidirectional prefixes"

    def check(subject: Subject) -> Finding | None:
        layer, cc = subject.layer, capability_of(subject)
        if not layer.group.prefix_lm:
            return None
        version = flash_version(subject)
        blocked = cc == (9, 0) and layer.quantized_kv
        found = _here(subject, version) + (f", {layer.kv_cache_dtype} cache" if blocked else "")
        source = _source_here(subject, version)
        source = both(source, layer.kv_cache_dtype_source) if blocked else source
        good = version == 4 and not blocked
        return (met if good else unmet)("prefix_lm", wanted, found, source)

    return Rule("prefix_lm", "both", check, wanted="with FA4")


def flash_alibi() -> Rule:
    """ALiBi is in FA2 alone."""
    wanted = "FA2 for ALiBi position biases"

    def check(subject: Subject) -> Finding | None:
        layer = subject.layer
        if not layer.group.alibi:
            return None
        version = flash_version(subject)
        source = _source_here(subject, version)
        finding = met if version == 2 else unmet
        return finding("alibi", wanted, _here(subject, version), source)

    return Rule("alibi", "both", check, wanted="with FA2")


def _here(subject: Subject, version: int | None) -> str:
    cc = capability_of(subject)
    where = f"compute capability {cc[0]}.{cc[1]}" if cc else subject.platform
    return f"FA{version} on {where}" if version else f"no FlashAttention for it on {where}"


def _source_here(subject: Subject, version: int | None) -> str:
    """Where the device and the version that would run on it were found."""
    cc = capability_of(subject)
    device = subject.source("capability" if cc else "platform")
    suitable = () if cc is None else suitable_versions(cc, subject.layer)
    asked = suitable if version is None else (version,)
    return both(device, _package_source(subject, *asked)) if asked else device


def _package_source(subject: Subject, *versions: int) -> str:
    own = [PACKAGES[version] for version in versions]
    # where only vLLM's wheel has it, that is where it was found
    carried = not installed(subject, *own) and installed(subject, CARRIER)
    return package_source(subject, *((CARRIER,) if carried else own))
