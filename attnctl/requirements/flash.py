"""Which FlashAttention version serves a layer on an NVIDIA device, and the rules that hinge on it.

FA2 needs compute capability 8.0, FA3 9.x, FA4 9.x to 11.x, and each its package. 9.x prefers FA3,
10.x FA4, everything else FA2; ALiBi is in FA2 alone; head sizes above 256, and sinks with unequal
K and V widths, need FA4 on 9.x; FA4 on Blackwell takes head sizes up to 128 and (192, 128).
"""

from __future__ import annotations

from attnctl.findings import Finding, met, unknown, unmet
from attnctl.layer import Layer
from attnctl.requirements.rule import Rule, Subject

PACKAGES = {2: "flash_attn", 3: "flash_attn_3", 4: "flash_attn_4"}


def flash_version(subject: Subject) -> int | None:
    """The FlashAttention version that would run this layer here, None where none would."""
    gpu, layer = subject.gpu, subject.layer
    if gpu is None or gpu.capability is None:
        return None
    for version in _preference(gpu.capability, layer):
        if _device_takes(version, gpu.capability) and _installed(subject, version):
            return version
    return None


def _preference(cc: tuple[int, int], layer: Layer) -> tuple[int, ...]:
    if layer.group.alibi:
        return (2,)
    size = max(layer.head_size or 0, layer.head_size_v or 0)
    if cc[0] == 9:
        needs_four = size > 256 or (layer.group.sinks and layer.op == "diffkv")
        return (4,) if needs_four else (3, 4, 2)
    if cc[0] in (10, 11):
        pair = (layer.head_size, layer.head_size_v)
        return (4, 2) if size <= 128 or pair == (192, 128) else (2,)
    return (2,)


def _device_takes(version: int, cc: tuple[int, int]) -> bool:
    return {2: cc >= (8, 0), 3: cc[0] == 9, 4: cc[0] in (9, 10, 11)}[version]


def _installed(subject: Subject, version: int) -> bool:
    packages = subject.machine.packages
    # vLLM's wheel carries FA2, FA3 and FA4 under vllm.vllm_flash_attn
    for name in (PACKAGES[version], "vllm"):
        package = packages.get(name)
        if package and package.status in ("ok", "assumed") and package.usable is not False:
            return True
    return False


def flash_kernel() -> Rule:
    """A FlashAttention version that takes this layer is installed for this device."""
    wanted = "FlashAttention 2, 3 or 4, as this device and layer need"

    def check(subject: Subject) -> Finding | None:
        gpu = subject.gpu
        if subject.platform != "cuda" or gpu is None or gpu.capability is None:
            return None
        version = flash_version(subject)
        if version is not None:
            return met("flash_version", wanted, f"FA{version}", "packages")
        usable = [
            v
            for v in _preference(gpu.capability, subject.layer)
            if _device_takes(v, gpu.capability)
        ]
        if not usable:
            return unmet("flash_version", wanted, "none takes this device and layer", "rules")
        fix = f"install {PACKAGES[usable[0]]}"
        if not subject.machine.packages:
            return unknown("flash_version", wanted, "packages not probed", "", fix)
        return unmet("flash_version", wanted, "not installed", "packages", fix)

    return Rule("flash_version", "both", check, (*PACKAGES.values(), "vllm"))


def flash_head_size() -> Rule:
    """Head sizes are multiples of 8, up to 256, or 512 where FA4 can run on the device."""

    def check(subject: Subject) -> Finding | None:
        layer, gpu = subject.layer, subject.gpu
        if layer.head_size is None:
            return None
        cc = gpu.capability if gpu else None
        wide = subject.platform == "xpu" or (
            cc is not None and cc[0] in (9, 10, 11) and _installed(subject, 4)
        )
        limit = 512 if wide else 256
        wanted = f"a multiple of 8, at most {limit}" + (
            "" if wide else " (512 with FA4 on 9.x to 11.x)"
        )
        sizes = sorted({layer.head_size, layer.head_size_v or layer.head_size}, reverse=True)
        good = all(size % 8 == 0 and size <= limit for size in sizes)
        found = " and ".join(map(str, sizes))
        return (met if good else unmet)("head_size", wanted, found, layer.source("head_size"))

    return Rule("head_size", "both", check)


def flash_kv_cache_dtype() -> Rule:
    """FP8 (e4m3) caches need FA3 on 9.x or FA4 on 10.x; e5m2 is in no version."""
    plain = ("auto", "float16", "bfloat16")

    def check(subject: Subject) -> Finding | None:
        layer, gpu = subject.layer, subject.gpu
        if not layer.group.needs_kv_cache:
            return None
        found, source = layer.kv_cache_dtype, layer.kv_cache_dtype_source
        wanted = "auto, float16, bfloat16, or fp8 (e4m3) with FA3 on 9.x or FA4 on 10.x"
        if found in plain or (found in ("fp8", "fp8_e4m3") and _takes_fp8(subject)):
            return met("kv_cache_dtype", wanted, found, source)
        here = "" if gpu is None or gpu.capability is None else " on {}.{}".format(*gpu.capability)
        return unmet("kv_cache_dtype", wanted, found + here, source, "--kv-cache-dtype auto")

    return Rule("kv_cache_dtype", "both", check)


def _takes_fp8(subject: Subject) -> bool:
    if subject.platform == "xpu":
        return True
    gpu = subject.gpu
    if gpu is None or gpu.capability is None:
        return False
    version, major = flash_version(subject), gpu.capability[0]
    return (major == 9 and (version == 3 or (version == 4 and subject.layer.head_size == 512))) or (
        major == 10 and version == 4
    )


def flash_sinks() -> Rule:
    """Attention sinks need FA3 or FA4, and compute capability 9.0."""
    wanted = "FlashAttention 3 or 4 and compute capability 9.0 or newer for attention sinks"

    def check(subject: Subject) -> Finding | None:
        layer, gpu = subject.layer, subject.gpu
        if not layer.group.sinks or subject.platform == "xpu":
            return None
        cc = gpu.capability if gpu else None
        version = flash_version(subject)
        found = f"FA{version}" if version else "no FlashAttention for it"
        found += " on compute capability {}.{}".format(*cc) if cc else f" on {subject.platform}"
        good = cc is not None and cc >= (9, 0) and version in (3, 4)
        return (met if good else unmet)("sinks", wanted, found, layer.source("sinks"))

    return Rule("sinks", "both", check)
