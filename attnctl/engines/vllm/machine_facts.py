"""A machine in vLLM's terms: which packages and kernels its selector would find there.

Read from `Machine.packages`: flashinfer, flashinfer_cubin, nvcc, tokenspeed_mla, b12x, aiter,
flash_attn (ROCm prefill). Assumed, and said in a note: that vLLM's own wheel is there, which brings
FlashAttention 2 and 3, the source of 4, and FlashMLA; that FlashInfer brings the CUTLASS DSL; that
nothing but installed cubins is reachable; that a version nobody knows is a new one.
"""

from __future__ import annotations

from attnctl.engines.vllm.facts import WHEEL, Facts, rocm_capability
from attnctl.exits import InputError
from attnctl.machine import Machine, Package

# first versions with the call that vLLM looks for
FLASHINFER_SM90_MLA = (0, 6, 18)
AITER_CAUSAL = (0, 1, 20)


def facts_of_machine(machine: Machine, aiter_env: bool = False) -> tuple[Facts, tuple[str, ...]]:
    """Return the facts of a machine's first visible GPU, or of its processor, and notes on them.

    aiter_env: whether VLLM_ROCM_USE_AITER=1 is set; vLLM's default is off.
    """
    have, unknown = _packages(machine)
    notes = _notes(machine)
    platform = machine.platform
    if platform == "cuda":
        facts = _cuda(machine, have, unknown)
    elif platform == "rocm":
        arch = machine.gpus[0].arch or ""
        switched = have | {"aiter_env"} if aiter_env else have
        facts = Facts(
            platform="rocm",
            arch=arch,
            capability=rocm_capability(arch),
            have=switched,
            unknown=unknown,
        )
    elif platform == "xpu":
        facts = Facts(platform="xpu", arch="xpu", have=have, unknown=unknown)
    else:
        facts = Facts(platform="cpu", arch=cpu_arch(machine), have=have | _isa(machine))
    return facts, notes


def _cuda(machine: Machine, have: frozenset[str], unknown: frozenset[str]) -> Facts:
    gpu = machine.gpus[0]
    if gpu.capability is None:
        name = gpu.name or "its first GPU"
        raise InputError(f"machine {machine.name}: {name} has no compute capability; add it there")
    arch = f"{gpu.capability[0]}.{gpu.capability[1]}"
    return Facts(
        platform="cuda",
        arch=arch,
        capability=gpu.capability,
        have=have | WHEEL,
        unknown=unknown,
    )


def cpu_arch(machine: Machine) -> str:
    """Return the processor as vLLM's CPU builds tell them apart: x86-amx, x86-avx512, ..."""
    if machine.cpu.arch not in (None, "x86_64", "amd64"):
        return str(machine.cpu.arch)
    have = _isa(machine)
    return "x86-amx" if "amx" in have else "x86-avx512" if "avx512" in have else "x86-avx2"


def _isa(machine: Machine) -> frozenset[str]:
    isa = machine.cpu.isa
    names = set()
    if any(name.startswith("amx") for name in isa):
        names.add("amx")
    if any(name.startswith("avx512") for name in isa):
        names.add("avx512")
    return frozenset(names)


def _packages(machine: Machine) -> tuple[frozenset[str], frozenset[str]]:
    names = ("flashinfer", "flashinfer_cubin", "tokenspeed_mla", "b12x", "aiter", "flash_attn")
    have = {name for name in names if _there(machine.packages.get(name))}
    unknown = {name for name in names if name not in have and _unasked(machine, name)}
    if "flashinfer" in have:
        have.add("cute_dsl")
        runs = "flashinfer_cubin" in have or _there(machine.packages.get("nvcc"))
        if runs:
            have.add("flashinfer_usable")
        if runs and _since(machine.packages["flashinfer"], FLASHINFER_SM90_MLA):
            have.add("flashinfer_sm90_mla")
    elif "flashinfer" in unknown:
        unknown.add("flashinfer_usable")
    if "aiter" in have and _since(machine.packages["aiter"], AITER_CAUSAL):
        have.add("aiter_causal")
    return frozenset(have), frozenset(unknown)


def _there(package: Package | None) -> bool:
    return (
        package is not None and package.status in ("ok", "assumed") and package.usable is not False
    )


def _unasked(machine: Machine, name: str) -> bool:
    package = machine.packages.get(name)
    if package is None:
        return not machine.packages
    return package.status in ("unknown", "timeout")


def _since(package: Package, least: tuple[int, ...]) -> bool:
    """Return whether a version is at least that one; an unknown version counts as new."""
    if not package.version:
        return True
    parts = []
    for word in package.version.split("+")[0].split("."):
        digits = word[: len(word) - len(word.lstrip("0123456789"))]
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts) >= least


def _notes(machine: Machine) -> tuple[str, ...]:
    notes = []
    package = machine.packages.get("vllm")
    if not _there(package):
        known = "is not installed here" if package or machine.packages else "was not looked for"
        notes.append(f"vLLM {known}: this is what its own wheel would choose on this machine")
    models = {gpu.arch for gpu in machine.gpus}
    if len(models) > 1:
        notes.append(f"GPUs of {len(models)} kinds are visible: the first one counts")
    return tuple(notes)
