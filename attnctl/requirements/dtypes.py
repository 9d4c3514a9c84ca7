"""Rules about number formats that the device must be able to compute or convert."""

from __future__ import annotations

from attnctl.findings import Finding, met, unmet
from attnctl.requirements.devices import arch_of, capability_of
from attnctl.requirements.layers import cache_fix
from attnctl.requirements.rule import Rule, Subject

E4M3 = ("fp8", "fp8_e4m3", "fp8_per_token_head", "fp8_ds_mla")

_FP8_ARCHS = ("gfx94", "gfx95", "gfx12")


def device_dtype() -> Rule:
    """The device computes in the layer's dtype: bfloat16 needs compute capability 8.0."""
    return _DEVICE_DTYPE


def fp8_hardware() -> Rule:
    """The device converts the cache's FP8 format: e4m3 from 8.9, e5m2 from 8.0.

    Triton 3.7.1 refuses fp8e4nv below 8.9 by name; fp8e5 loads compile for sm_80 and sm_86
    (tests/requirements/test_fp8_compiles.py is the check), and smoke proves them on a device.
    AMD: native on gfx94x, gfx95x and gfx12xx, in software elsewhere (gfx90a and gfx1100 compile).
    Intel: in software.
    """
    return _FP8_HARDWARE


_BF16 = "compute capability 8.0 or newer for bfloat16"


def _check_device_dtype(subject: Subject) -> Finding | None:
    cc = capability_of(subject)
    if cc is None or cc >= (8, 0) or subject.layer.dtype != "bfloat16":
        return None
    found = f"compute capability {cc[0]}.{cc[1]}"
    return unmet("device_dtype", _BF16, found, subject.source("capability"), "--dtype float16")


def _check_fp8(subject: Subject) -> Finding | None:
    layer = subject.layer
    if not layer.kv_cache_dtype.startswith("fp8") or not layer.group.needs_kv_cache:
        return None
    if subject.platform == "rocm":
        return _fp8_rocm(subject)
    return _fp8_cuda(subject) if subject.platform == "cuda" else None


def _fp8_cuda(subject: Subject) -> Finding | None:
    kv_dtype, cc = subject.layer.kv_cache_dtype, capability_of(subject)
    if cc is None:
        return None
    least, name = ((8, 9), "e4m3") if kv_dtype in E4M3 else ((8, 0), "e5m2")
    wanted = f"compute capability {least[0]}.{least[1]} or newer for {name}"
    found, source = f"{cc[0]}.{cc[1]}", subject.source("capability")
    if cc >= least:
        proof = "" if cc >= (8, 9) else " (by cross-compilation; attnctl smoke proves it)"
        return met("fp8_hardware", wanted, found + proof, source)
    fix = "--kv-cache-dtype fp8_e5m2" if cc >= (8, 0) else cache_fix(subject.layer)
    return unmet("fp8_hardware", wanted, found, source, fix)


def _fp8_rocm(subject: Subject) -> Finding | None:
    arch = arch_of(subject)
    if not arch:
        return None
    native = arch.startswith(_FP8_ARCHS)
    found = arch if native else f"{arch}, in software (by cross-compilation; smoke proves it)"
    wanted = f"conversion of {subject.layer.kv_cache_dtype}"
    return met("fp8_hardware", wanted, found, subject.source("arch"))


# one object each, so that every backend that asks shares the answer
_DEVICE_DTYPE = Rule("device_dtype", "both", _check_device_dtype, wanted=_BF16, platforms=("cuda",))
_FP8_HARDWARE = Rule(
    "fp8_hardware",
    "both",
    _check_fp8,
    wanted="compute capability 8.9 (e4m3) or 8.0 (e5m2) for FP8 caches",
)
