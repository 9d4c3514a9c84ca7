"""Rules of FlashInfer, whose precompiled kernels (cubins) decide what it can do beyond the plain.

Sinks: 9.0 and 12.x by its XQA decode kernel, 10.x by TensorRT-LLM's; other devices have none. Both
come as cubins. NVFP4 caches: 8.x, 9.x and 12.x without sinks and not at head size 64; 10.x by
cubins.
"""

from __future__ import annotations

from attnctl.findings import Finding, met, unmet
from attnctl.requirements.devices import capability_of
from attnctl.requirements.layers import PLAIN_KV, cache_fix
from attnctl.requirements.packages import INSTALL, installed, package_source
from attnctl.requirements.rule import Rule, Subject
from attnctl.requirements.words import both

CUBINS = "flashinfer_cubin"


def flashinfer_sinks() -> Rule:
    """Attention sinks need a device for which FlashInfer has such kernels, and its cubins."""
    wanted = "flashinfer-cubin on 9.0, 10.x or 12.x for attention sinks"

    def check(subject: Subject) -> Finding | None:
        layer, cc = subject.layer, capability_of(subject)
        if not layer.group.sinks:
            return None
        source = _device_source(subject)
        if cc is None or not (cc == (9, 0) or cc[0] in (10, 12)):
            where = f"compute capability {cc[0]}.{cc[1]}" if cc else subject.platform
            return unmet("sinks", wanted, f"no such kernels on {where}", source)
        cubins = package_source(subject, CUBINS)
        if not installed(subject, CUBINS):
            return unmet("sinks", wanted, "no cubins", cubins, INSTALL[CUBINS])
        if layer.kv_cache_dtype == "nvfp4" and cc[0] != 10:
            cache = layer.kv_cache_dtype_source
            return unmet("sinks", wanted, "an nvfp4 cache", cache, cache_fix(layer))
        return met("sinks", wanted, f"{cc[0]}.{cc[1]} with cubins", both(source, cubins))

    return Rule("sinks", "both", check, (CUBINS,), "with cubins on 9.0, 10.x, 12.x")


def flashinfer_kv_cache_dtype() -> Rule:
    """Caches in half precision and FP8 everywhere; NVFP4 as the device and the cubins allow."""
    wanted = "auto, float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2 or nvfp4 (8.x, 9.x, 10.x, 12.x)"
    plain = (*PLAIN_KV, "fp8", "fp8_e4m3", "fp8_e5m2")

    def check(subject: Subject) -> Finding | None:
        layer = subject.layer
        if not layer.group.needs_kv_cache:
            return None
        found, source = layer.kv_cache_dtype, layer.kv_cache_dtype_source
        if found in plain:
            return met("kv_cache_dtype", wanted, found, source)
        problem, where = _nvfp4_problem(subject) if found == "nvfp4" else (found, "")
        if not problem:
            return met("kv_cache_dtype", wanted, found, source)
        return unmet("kv_cache_dtype", wanted, problem, both(source, where), cache_fix(layer))

    return Rule("kv_cache_dtype", "both", check, (CUBINS,), wanted)


def _nvfp4_problem(subject: Subject) -> tuple[str, str]:
    """What keeps an NVFP4 cache from being used here and where that was found; "": nothing."""
    cc = capability_of(subject)
    if cc is None or cc[0] not in (8, 9, 10, 12):
        where = f"compute capability {cc[0]}.{cc[1]}" if cc else subject.platform
        return f"nvfp4 on {where}", _device_source(subject)
    if cc[0] == 10:
        there = installed(subject, CUBINS)
        source = both(_device_source(subject), package_source(subject, CUBINS))
        return ("", "") if there else ("nvfp4 on 10.x without flashinfer-cubin", source)
    if subject.layer.head_size == 64:
        return "nvfp4 at head size 64", subject.layer.source("head_size")
    return "", ""


def _device_source(subject: Subject) -> str:
    return subject.source("capability" if capability_of(subject) else "platform")
