"""Whether the software that is installed fits the GPUs that are there."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from attnctl.findings import Finding, unmet
from attnctl.machine import Gpu, Package, Vendor
from attnctl.probe.code_objects import device_code_findings
from attnctl.probe.ledger import Ledger
from attnctl.probe.site import Site
from attnctl.probe.toolchain import Toolchain, triton_usable

# vendor -> its name, the build of torch that drives its GPUs, an index with such wheels
_TORCH = {
    "nvidia": ("NVIDIA", "cuda", "cu130"),
    "amd": ("AMD", "hip", "rocm7.0"),
    "intel": ("Intel", "xpu", "xpu"),
}

NO_GPU = "no GPU here that Triton has a driver for: its interpreter alone runs"


def fitted(
    packages: dict[str, Package],
    site: Site,
    vendors: Mapping[str, Vendor],
    tools: Toolchain,
    ledger: Ledger,
) -> dict[str, Package]:
    """The packages, with `usable` and `reason` set where GPUs or tools speak against one."""
    gpus = visible(vendors)
    ledger.findings += torch_findings(vendors, packages["torch"])
    arches = [gpu.arch for gpu in gpus if gpu.arch]
    ledger.findings += device_code_findings(site, packages, arches)
    triton = packages["triton"]
    if triton.status != "ok":
        return packages
    return {**packages, "triton": fitted_triton(triton, gpus, tools, ledger)}


def visible(vendors: Mapping[str, Vendor]) -> tuple[Gpu, ...]:
    return tuple(gpu for vendor in vendors.values() for gpu in vendor.gpus if gpu.visible)


def fitted_triton(
    triton: Package, gpus: tuple[Gpu, ...], tools: Toolchain, ledger: Ledger
) -> Package:
    """The package with what its compiler and assembler need, and whether that is there."""
    build = {**triton.build, "ptxas": tools.ptxas} if tools.ptxas else triton.build
    if not gpus:
        return msgspec.structs.replace(triton, build=build, reason=triton.reason or NO_GPU)
    # one GPU per architecture: the tools fit all of its kind or none
    kinds = {gpu.arch: gpu for gpu in gpus}.values()
    answers = [triton_usable(gpu, tools) for gpu in kinds]
    problems = [finding for _, found in answers for finding in found if not finding.met]
    problems = list(dict.fromkeys(problems))
    ledger.findings += problems
    broken = triton.usable is False or any(usable is False for usable, _ in answers)
    reasons = [triton.reason, *(finding.found for finding in problems)]
    reason = "; ".join(reason for reason in reasons if reason)
    usable = False if broken else None
    return msgspec.structs.replace(triton, build=build, usable=usable, reason=reason)


def torch_findings(vendors: Mapping[str, Vendor], torch: Package) -> list[Finding]:
    """A torch that was built for another kind of machine, or for a newer driver."""
    if torch.status != "ok" or torch.usable is False:
        return []
    if not torch.source.endswith("version.py"):  # nobody knows how it was built
        return []
    findings = []
    for name, (title, build, index) in _TORCH.items():
        vendor = vendors.get(name, Vendor())
        if not any(gpu.visible for gpu in vendor.gpus):
            continue
        if build in torch.build:
            findings += _driver_finding(vendor, torch) if name == "nvidia" else []
            continue
        kind = next((known for known in ("cuda", "hip", "xpu") if known in torch.build), "CPU")
        found = f"torch {torch.version} is a {kind} build, and there is a GPU of {title}"
        fix = f"pip install torch --index-url https://download.pytorch.org/whl/{index}"
        wanted = f"a torch that drives GPUs of {title}"
        findings.append(unmet("package.torch.platform", wanted, found, torch.source, fix))
    return findings


def _driver_finding(vendor: Vendor, torch: Package) -> list[Finding]:
    """CUDA is compatible within one major version; a newer major needs a newer driver."""
    built, taken = _major(torch.build["cuda"]), _major(vendor.runtime)
    if built is None or taken is None or taken >= built:
        return []
    wanted = f"a driver that takes CUDA {torch.build['cuda']}, for torch {torch.version}"
    found = f"driver {vendor.driver} takes CUDA {vendor.runtime}"
    fix = f"update the driver, or install a torch that is built for CUDA {taken}"
    return [unmet("package.torch.driver", wanted, found, vendor.source, fix)]


def _major(version: str | None) -> int | None:
    first = (version or "").partition(".")[0]
    return int(first) if first.isdecimal() and len(first) < 5 else None
