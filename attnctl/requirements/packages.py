"""Rules about installed software, none of which is imported to find out."""

from __future__ import annotations

from attnctl.findings import Finding, met, unknown, unmet
from attnctl.machine import Machine, Package
from attnctl.requirements.devices import capability
from attnctl.requirements.rule import Rule, Subject
from attnctl.requirements.words import any_of

# what a user would do, where it is not `pip install` and the key with dashes
INSTALL = {
    "flash_attn": "pip install flash-attn",
    "flash_attn_3": "build flash-attention/hopper (module flash_attn_interface)",
    "flash_attn_4": "pip install flash-attn-4",
    "flashinfer": "pip install flashinfer-python",
    "flashinfer_cubin": "pip install flashinfer-cubin",
    "flash_mla": "build FlashMLA (deepseek-ai/FlashMLA)",
    "aiter": "build AITER (ROCm/aiter) for this ROCm",
    "torch": "pip install 'attnctl[kernels]', or attnctl in the environment of your engine",
    "triton": "pip install triton",
    "vllm_xpu_kernels": "install vLLM's XPU build",
}

PROBED = frozenset(INSTALL) | {"fla", "mamba_ssm", "causal_conv1d", "vllm"}
"""Packages that a probe looks for: one of them that a machine does not list is not installed."""

TRITON_PLATFORMS = ("cuda", "rocm", "xpu")


def installed(subject: Subject, *names: str) -> bool:
    """True where one of these packages is there and nothing shows that it cannot run."""
    packages = subject.machine.packages
    return any(name in packages and _runs(packages[name]) for name in names)


def _runs(package: Package) -> bool:
    return package.status in ("ok", "assumed") and package.usable is not False


def lack_of_torch(machine: Machine) -> str:
    """Why no kernel runs on a machine without torch, and what to do; "" where torch is there."""
    found = machine.packages.get("torch")
    if found is not None and _runs(found):
        return ""
    why = "is not installed" if found is None or found.status == "absent" else "does not run here"
    return f"torch {why}, and no kernel runs without it: {INSTALL['torch']}"


def package(*names: str, platforms: tuple[str, ...] = (), code: str = "package_missing") -> Rule:
    """One of these packages is installed and nothing shows that it cannot run here.

    Unmet where the machine was asked and has none; unknown where nobody asked it.
    """
    wanted = any_of(names)
    install = INSTALL.get(names[0], f"pip install {names[0].replace('_', '-')}")

    def check(subject: Subject) -> Finding | None:
        if platforms and subject.platform not in platforms:
            return None
        packages = subject.machine.packages
        seen = [(name, packages[name]) for name in names if name in packages]
        for name, found in seen:
            if _runs(found):
                return met(code, wanted, f"{name} {found.version or ''}".strip(), found.source)
        for name, found in seen:
            if found.status in ("ok", "assumed"):
                reason = found.reason or "it cannot run here"
                return unmet(code, wanted, f"{name}, but {reason}", found.source, install)
        for name, found in seen:
            if found.status in ("unknown", "timeout"):
                return unknown(code, wanted, f"{name}: {found.reason}", found.source, install)
        if not packages:
            return unknown(code, wanted, "packages not probed", "", "--assume-installed all")
        if seen or PROBED.intersection(names):
            return unmet(code, wanted, "not installed", _source(seen, subject), install)
        return unknown(code, wanted, "not looked for", f"machine {subject.machine.name}", install)

    return Rule(code, "machine", check, names, wanted, platforms)


def package_source(subject: Subject, *names: str) -> str:
    """Return where it was learnt whether these packages are there."""
    packages = subject.machine.packages
    return _source([(name, packages[name]) for name in names if name in packages], subject)


def _source(seen: list[tuple[str, Package]], subject: Subject) -> str:
    return (seen[0][1].source if seen else "") or f"packages of machine {subject.machine.name}"


def triton() -> list[Rule]:
    """torch, and on a GPU Triton and a device for which it compiles."""
    return [
        package("torch"),
        package("triton", platforms=TRITON_PLATFORMS),
        # cross-compiled for sm_70 and sm_75 with Triton 3.7.1: scalar products, no matrix units
        capability(at_least=(7, 0), why="Triton"),
    ]
