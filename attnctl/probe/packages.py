"""Software that attention backends need, found without importing any of it."""

from __future__ import annotations

import msgspec

from attnctl.findings import Finding, unmet
from attnctl.machine import Package
from attnctl.probe.host import HostError
from attnctl.probe.ledger import Ledger, status_of
from attnctl.probe.site import Site
from attnctl.probe.torchbuild import torch_package


class Spec(msgspec.Struct, frozen=True):
    """How one package is known.

    distributions: names of its wheels. module: what is imported, with slashes. proof: a name that
    must be in the module's folder, for names that another package can occupy in part.
    """

    key: str
    distributions: tuple[str, ...]
    module: str
    proof: str = ""


SPECS = (
    Spec("torch", ("torch",), "torch"),
    Spec(
        "triton",
        (
            "triton",
            "pytorch_triton",
            "pytorch_triton_rocm",
            "pytorch_triton_xpu",
            "triton_rocm",
            "triton_xpu",
        ),
        "triton",
    ),
    # version 4 alone leaves a flash_attn folder too, without an __init__.py of its own
    Spec("flash_attn", ("flash_attn",), "flash_attn", "__init__.py"),
    Spec("flash_attn_3", ("flash_attn_3", "flash_attn_interface"), "flash_attn_interface"),
    Spec("flash_attn_4", ("flash_attn_4",), "flash_attn/cute", "interface.py"),
    Spec("flashinfer", ("flashinfer_python", "flashinfer"), "flashinfer"),
    Spec("flashinfer_cubin", ("flashinfer_cubin",), "flashinfer_cubin"),
    Spec("flash_mla", ("flash_mla",), "flash_mla"),
    # an unrelated package on PyPI has the same module name
    Spec("aiter", ("amd_aiter", "aiter"), "aiter", "ops"),
    Spec("fla", ("flash_linear_attention", "fla_core"), "fla"),
    Spec("mamba_ssm", ("mamba_ssm",), "mamba_ssm"),
    Spec("causal_conv1d", ("causal_conv1d",), "causal_conv1d"),
    Spec("vllm", ("vllm",), "vllm"),
    Spec("sglang", ("sglang",), "sglang"),
    Spec("transformers", ("transformers",), "transformers"),
    Spec("vllm_xpu_kernels", ("vllm_xpu_kernels",), "vllm_xpu_kernels"),
    Spec("amdsmi", ("amdsmi",), "amdsmi"),
    Spec("pynvml", ("nvidia_ml_py", "pynvml"), "pynvml"),
)
KEYS = tuple(spec.key for spec in SPECS)

SOURCE = "names in the folders of sys.path"
REDIRECTOR = "_pynvml_redirector.pth"


def probe_packages(site: Site, ledger: Ledger) -> dict[str, Package]:
    """One entry per known package, also for those that are absent."""
    if site.problems and not site.listings:
        return unknown_packages(site.problems[0], ledger)
    found = {spec.key: _package(site, spec, ledger) for spec in SPECS}
    _note(found, ledger)
    ledger.findings += _pynvml_findings(site)
    return found


def unknown_packages(error: HostError, ledger: Ledger) -> dict[str, Package]:
    """One entry per known package where no folder could be looked into."""
    for key in KEYS:
        ledger.failed(f"packages.{key}", SOURCE, error)
    gone = Package(status=status_of(error), source=SOURCE, reason=error.detail)
    return dict.fromkeys(KEYS, gone)


def _package(site: Site, spec: Spec, ledger: Ledger) -> Package:
    distribution = site.distribution(*spec.distributions)
    module, problem = _module(site, spec, distribution is not None)
    if module is None and distribution is None:
        return Package(status="absent", source=SOURCE, reason=problem)
    if module is None and distribution is not None:
        return _incomplete(spec, distribution, problem, ledger)
    assert module is not None
    if spec.key == "torch":
        return torch_package(site, module, distribution, ledger)
    version, source = distribution or site.written_version(module) or (None, module)
    return Package(status="ok", source=source, version=version, build=_build(site, spec, module))


def _module(site: Site, spec: Spec, has_metadata: bool) -> tuple[str | None, str]:
    """(path of the module, why it counts as not there)."""
    top, _, inner = spec.module.partition("/")
    path = site.module(top)
    if path is None:
        return None, f"no {top} in the folders of sys.path"
    if inner:
        path = f"{path}/{inner}"
    if path.endswith(".py"):
        return path, ""
    proof = spec.proof or ("" if has_metadata else "__init__.py")
    if proof and proof not in site.files(path):
        return None, f"{path} has no {proof}"
    return path, ""


def _incomplete(spec: Spec, distribution: tuple[str, str], problem: str, ledger: Ledger) -> Package:
    """A package whose metadata is there and whose files are not."""
    version, source = distribution
    name = spec.distributions[0].replace("_", "-")
    if spec.key == "aiter":
        reason = f"{problem}: this is another package of that name, not AMD's"
        return Package(status="absent", source=source, reason=reason)
    fix = f"pip install --force-reinstall --no-deps {name}=={version}"
    ledger.findings.append(
        unmet(
            f"package.{spec.key}.incomplete", f"the files of {name} {version}", problem, source, fix
        )
    )
    return Package(status="ok", source=source, version=version, usable=False, reason=problem)


def _build(site: Site, spec: Spec, module: str) -> dict[str, str]:
    """What else matters of a package's build, as far as names of files tell."""
    if spec.key == "flashinfer":
        jit_cache = site.distribution("flashinfer_jit_cache")
        return {"jit_cache": jit_cache[0]} if jit_cache else {}
    if spec.key == "vllm":
        names = site.files(f"{module}/vllm_flash_attn")
        found = [
            number
            for number in ("2", "3", "4")
            if any(name.startswith(f"_vllm_fa{number}_") for name in names)
        ]
        return {"flash_attn": ",".join(found)} if found else {}
    return {}


def _note(found: dict[str, Package], ledger: Ledger) -> None:
    for key, package in found.items():
        path = f"packages.{key}"
        if package.status != "ok":
            ledger.missing(path, package.source, package.reason, package.status)
        elif package.version is None:
            ledger.missing(f"{path}.version", package.source, "no metadata and no __version__")
        else:
            ledger.known(f"{path}.version", package.source)


def _pynvml_findings(site: Site) -> list[Finding]:
    """The distribution named pynvml: it slows every Python start, or hides nvidia-ml-py's file."""
    folder = site.holds(REDIRECTOR)
    fix = "pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py"
    if folder is not None:
        wanted = "module pynvml from nvidia-ml-py"
        found = "the deprecated distribution pynvml hooks itself into every start of Python"
        source = f"{folder}/{REDIRECTOR}"
        return [unmet("package.pynvml.deprecated", wanted, found, source, fix)]
    for folder, names in site.listings:
        if "pynvml" in names and "pynvml.py" in names:
            wanted = "one module pynvml"
            found = "a folder of the old distribution pynvml hides the file of nvidia-ml-py"
            return [unmet("package.pynvml.clash", wanted, found, f"{folder}/pynvml", fix)]
    return []
