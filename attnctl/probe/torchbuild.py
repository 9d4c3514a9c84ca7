"""How the installed torch was built, from its version.py and the libraries beside it."""

from __future__ import annotations

import re

from attnctl.findings import unmet
from attnctl.machine import Package
from attnctl.probe.host import HostError, names_in, read
from attnctl.probe.ledger import Ledger
from attnctl.probe.site import Site

# lines carry annotations: `cuda: Optional[str] = None`
_ASSIGNMENT = re.compile(r"^(\w+)(?:\s*:[^=\n]+)?\s*=\s*(.+)$", re.MULTILINE)

# as many as git itself shows of a commit in a project of this size
GIT_DIGITS = 10

# a build's name in version.py, the library that such a build has, and what people call it
BUILDS = {
    "cuda": ("libtorch_cuda.so", "CUDA"),
    "hip": ("libtorch_hip.so", "ROCm"),
    "xpu": ("libtorch_xpu.so", "XPU"),
}


def torch_package(
    site: Site, module: str, distribution: tuple[str, str] | None, ledger: Ledger
) -> Package:
    """The torch in folder `module`. A build and libraries that disagree make it unusable."""
    source = f"{module}/version.py"
    try:
        values = version_values(read(site.host, source))
    except HostError as error:
        version, source = distribution or (None, source)
        reason = f"version.py: {error.detail}"
        ledger.missing("packages.torch.build", f"{module}/version.py", reason)
        return Package(status="ok", source=source, version=version, reason=reason)
    version = values.get("__version__") or (distribution or (None,))[0]
    build = {name: values[name] for name in (*BUILDS, "rocm") if name in values}
    if "git_version" in values:
        build["git"] = values["git_version"][:GIT_DIGITS]
    ledger.known("packages.torch.build", source)
    problem = _library_problem(site, module, build)
    if problem:
        ledger.findings.append(
            unmet(
                "package.torch.mismatch",
                "version.py and torch/lib of one build",
                problem,
                f"{module}/lib",
                f"pip install --force-reinstall torch=={version}",
            )
        )
    _compare_metadata(version, distribution, source, ledger)
    return Package(
        status="ok",
        source=source,
        version=version,
        build=build,
        usable=False if problem else None,
        reason=problem,
    )


def version_values(text: str) -> dict[str, str]:
    """The texts that version.py assigns; names that are None are left out."""
    found = {}
    for name, value in _ASSIGNMENT.findall(text):
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            found[name] = value[1:-1]
    return found


def _library_problem(site: Site, module: str, build: dict[str, str]) -> str:
    """Where the build that version.py names and the libraries disagree; "" where they agree."""
    try:
        names = names_in(site.host, f"{module}/lib")
    except HostError:
        return ""  # a build from source may keep its libraries elsewhere
    if not any(name.startswith("libtorch") for name in names):
        return ""
    for name, (library, title) in BUILDS.items():
        if name in build and library not in names:
            return f"version.py says {title} {build[name]} and torch/lib has no {library}"
        if name not in build and library in names:
            return f"version.py names no {title} and torch/lib has {library}"
    return ""


def _compare_metadata(
    version: str | None, distribution: tuple[str, str] | None, source: str, ledger: Ledger
) -> None:
    if distribution is None or version is None or distribution[0] == version:
        return
    # a local part (+cu130) may stand in one of the two only
    if distribution[0].partition("+")[0] == version.partition("+")[0]:
        return
    found = f"version.py says {version}, the metadata {distribution[0]}"
    fix = "pip uninstall torch until it says that nothing is installed, then install it again"
    ledger.findings.append(unmet("package.torch.metadata", "one version", found, source, fix))
