"""Which GPUs a package has device code for, as far as names of files tell.

Importable is not runnable: a wheel for gfx942 imports on gfx1201 and fails at its first launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from attnctl.findings import Finding, met, unmet
from attnctl.machine import Package
from attnctl.probe.site import Site

_GFX = re.compile(r"gfx(?:\d+(?:-\d+)?-generic|[0-9a-f]{3,4})(?![0-9a-f])")

# LLVM, "User Guide for AMDGPU Backend", table of generic processors
_GENERIC = {
    "gfx9-generic": "gfx900 gfx902 gfx904 gfx906 gfx909 gfx90c",
    "gfx9-4-generic": "gfx940 gfx941 gfx942 gfx950",
    "gfx10-1-generic": "gfx1010 gfx1011 gfx1012 gfx1013",
    "gfx10-3-generic": "gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036",
    "gfx11-generic": "gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153",
    "gfx12-generic": "gfx1200 gfx1201",
}

# package -> (a module, a folder in it) whose names carry the architectures
_FOLDERS = {
    "torch": ("torch", "lib/rocblas/library"),
    "aiter": ("aiter_meta", "hsa"),
}


def architectures(names: Iterable[str]) -> frozenset[str]:
    """The gfx architectures that names of files or folders carry."""
    return frozenset(match for name in names for match in _GFX.findall(name))


def covers(arches: Iterable[str], arch: str) -> bool:
    """Whether one of the architectures, or a generic one, runs on this one."""
    return any(arch == one or arch in _GENERIC.get(one, "").split() for one in arches)


def device_code_finding(
    package: str, arch: str, arches: frozenset[str], source: str = ""
) -> Finding:
    """Whether a package that has code for `arches` has some for a GPU of `arch`."""
    code = f"package.{package}.device_code"
    wanted = f"device code for {arch} in {package}"
    has = "code for " + ", ".join(sorted(arches))
    if covers(arches, arch):
        return met(code, wanted, has, source)
    found = f"the package has no device code for this GPU: {has}"
    return unmet(code, wanted, found, source, f"install a build of {package} for {arch}")


def device_code_findings(
    site: Site, packages: dict[str, Package], arches: Iterable[str]
) -> list[Finding]:
    """One unmet finding per package and AMD architecture of this machine that it cannot serve."""
    wanted = sorted({arch for arch in arches if arch.startswith("gfx")})
    findings = []
    for key, (module, folder) in _FOLDERS.items() if wanted else ():
        package = packages.get(key)
        path = site.module(module) if package and package.status == "ok" else None
        if path is None:
            continue
        has = architectures(site.files(f"{path}/{folder}"))
        checked = [
            device_code_finding(key, arch, has, f"{path}/{folder}") for arch in wanted if has
        ]
        findings += [finding for finding in checked if not finding.met]
    return findings
