"""Which FlashAttention version serves a layer on an NVIDIA device, and the rules that hinge on it.

FA2 needs compute capability 8.0, FA3 9.x, FA4 9.x to 11.x, and each its package. 9.x prefers FA3,
10.x FA4, everything else FA2; ALiBi is in FA2 alone, unequal K and V widths are not; head sizes
above 256, and sinks with unequal widths or widths that FA3 does not pair, need FA4 on 9.x; FA4 on
Blackwell takes head sizes up to 128 and (192, 128).
"""

from __future__ import annotations

from attnctl.findings import Finding, met, unknown, unmet
from attnctl.layer import Layer
from attnctl.requirements.devices import Version, capability_of
from attnctl.requirements.layers import PLAIN_KV, block_size, cache_fix
from attnctl.requirements.packages import INSTALL, installed, package_source
from attnctl.requirements.rule import Rule, Subject
from attnctl.requirements.words import any_of, both

FA2_PAGE = 256
"""Of what the flash-attn package takes pages to be multiples; vLLM's build of FA2 takes 16."""

PACKAGES = {2: "flash_attn", 3: "flash_attn_3", 4: "flash_attn_4"}

CARRIER = "vllm"
"""vLLM's wheel carries all three under vllm.vllm_flash_attn."""


def flash_version(subject: Subject) -> int | None:
    """The FlashAttention version that would run this layer here, None where none would."""
    cc = capability_of(subject)
    if cc is None:
        return None
    for version in suitable_versions(cc, subject.layer):
        if _has(subject, version):
            return version
    return None


def _has(subject: Subject, version: int) -> bool:
    return installed(subject, PACKAGES[version]) or _carried(subject, version)


def _carried(subject: Subject, version: int) -> bool:
    """Whether vLLM is there and brings this version."""
    if not installed(subject, CARRIER):
        return False
    # a probe lists the compiled ones in its build; FA4 is Python source and in every wheel
    compiled = subject.machine.packages[CARRIER].build.get("flash_attn")
    return version == 4 or compiled is None or str(version) in compiled.split(",")


def suitable_versions(cc: Version, layer: Layer) -> list[int]:
    """The versions that take this layer on this device, the preferred one first."""
    return [version for version in _preference(cc, layer) if _device_takes(version, cc)]


def _preference(cc: Version, layer: Layer) -> tuple[int, ...]:
    if layer.group.alibi:
        return (2,)
    unequal = layer.op == "diffkv"
    size = max(layer.head_size or 0, layer.head_size_v or 0)
    if cc[0] == 9:
        if size > 256 or (unequal and (layer.group.sinks or not _paired(layer))):
            return (4,)
        return (3, 4) if unequal else (3, 4, 2)
    if cc[0] in (10, 11) and (size <= 128 or (layer.head_size, layer.head_size_v) == (192, 128)):
        if unequal:
            return (4,)
        # the field keeps FA2 on 11.x, and takes FA4 where that alone is there
        return (4, 2) if cc[0] == 10 else (2, 4)
    return () if unequal else (2,)


def _paired(layer: Layer) -> bool:
    """Whether FA3 takes these unequal widths of K and V: its own check, in its words' order."""
    width, width_v = layer.head_size or 0, layer.head_size_v or 0
    return (128 < width <= 192 and 96 < width_v <= 128) or (width <= 64 and width_v <= 512)


def _device_takes(version: int, cc: Version) -> bool:
    return {2: cc >= (8, 0), 3: cc[0] == 9, 4: cc[0] in (9, 10, 11)}[version]


def flash_block_multiple(subject: Subject) -> int | None:
    """256 where the flash-attn package's own FA2 serves the layer; None: as elsewhere."""
    if subject.platform != "cuda" or flash_version(subject) != 2 or _carried(subject, 2):
        return None
    return FA2_PAGE


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
        hopper = cc is not None and cc[0] == 9 and _has(subject, 4)
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
        if version == 3 and not _carried(subject, 3):
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
