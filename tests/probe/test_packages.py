"""Installed software, from names of files and the text of version.py, without an import."""

import pytest

from attnctl.machine import Gpu, Vendor
from attnctl.probe.code_objects import architectures, covers, device_code_finding
from attnctl.probe.compatibility import torch_findings
from attnctl.probe.ledger import Ledger
from attnctl.probe.packages import KEYS, REDIRECTOR, probe_packages
from attnctl.probe.site import Site
from attnctl.probe.tape import Replay

HERE = "/opt/venv/lib/python3.12/site-packages"

VERSION_PY = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda}
git_version = '0123456789abcdef'
hip: Optional[str] = {hip}
rocm: Optional[str] = None
xpu: Optional[str] = None
"""


def site(*names, files=(), folders=()):
    answers = {("site_dirs",): [HERE], ("list", HERE): sorted(names)}
    answers |= {("read", f"{HERE}/{name}"): text for name, text in dict(files).items()}
    answers |= {("list", f"{HERE}/{name}"): found for name, found in dict(folders).items()}
    return Site(Replay.of(answers))


def found(*names, **more):
    ledger = Ledger()
    return probe_packages(site(*names, **more), ledger), ledger


def torch(version="2.13.0+cu130", cuda="'13.0'", hip="None", libraries=("libtorch_cuda.so",)):
    text = VERSION_PY.format(version=version, cuda=cuda, hip=hip)
    packages, ledger = found(
        "torch",
        f"torch-{version}.dist-info",
        files={"torch/version.py": text},
        folders={"torch/lib": ["libtorch.so", "libtorch_cpu.so", *libraries]},
    )
    return packages["torch"], ledger.findings


def test_every_package_has_an_entry_even_where_nothing_is_installed():
    """Absence is a fact with a source and a reason."""
    packages, ledger = found()
    assert tuple(packages) == KEYS
    assert {package.status for package in packages.values()} == {"absent"}
    assert ledger.facts["packages.torch"].reason == "no torch in the folders of sys.path"
    assert ledger.findings == []


@pytest.mark.parametrize(
    ("names", "key", "version"),
    [
        (("vllm", "vllm-0.33.0.dist-info"), "vllm", "0.33.0"),
        (("triton", "pytorch_triton_rocm-3.6.0.dist-info"), "triton", "3.6.0"),
        (("fla", "flash_linear_attention-0.4.1.dist-info"), "fla", "0.4.1"),
        (("mamba_ssm", "mamba_ssm-2.3.0-py3.12.egg-info"), "mamba_ssm", "2.3.0"),
        (("flash_mla", "flash-mla-1.0.0+abc.dist-info"), "flash_mla", "1.0.0+abc"),
        (("pynvml.py", "nvidia_ml_py-13.615.71.dist-info"), "pynvml", "13.615.71"),
        (
            ("flash_attn_interface.py", "flash_attn_3-3.0.0b1.dist-info"),
            "flash_attn_3",
            "3.0.0b1",
        ),
    ],
)
def test_the_version_is_in_the_name_of_the_metadata(names, key, version):
    """Distributions are called otherwise than their modules, and spelled in several ways."""
    packages, ledger = found(*names)
    assert (packages[key].status, packages[key].version) == ("ok", version)
    assert packages[key].usable is None
    assert ledger.facts[f"packages.{key}.version"].status == "ok"


def test_a_module_without_metadata_tells_its_version_itself():
    """A checkout on sys.path has no metadata."""
    packages, _ = found(
        "fla",
        files={"fla/__init__.py": "import x\n__version__ = '0.5.0.dev1'\n"},
        folders={"fla": ["__init__.py", "ops"]},
    )
    assert packages["fla"].version == "0.5.0.dev1"
    assert packages["fla"].source == f"{HERE}/fla/__init__.py"


def test_a_folder_that_an_uninstall_left_is_not_a_package():
    """Python would import it as an empty namespace."""
    packages, _ = found("fla", folders={"fla": ["__pycache__"]})
    assert packages["fla"].status == "absent"
    assert packages["fla"].reason == f"{HERE}/fla has no __init__.py"


def test_metadata_without_files_is_installed_and_unusable():
    """A broken installation is named, with the command that mends it."""
    packages, ledger = found("vllm-0.33.0.dist-info")
    assert (packages["vllm"].status, packages["vllm"].usable) == ("ok", False)
    (finding,) = ledger.findings
    assert finding.code == "package.vllm.incomplete"
    assert finding.fix == "pip install --force-reinstall --no-deps vllm==0.33.0"


def test_an_editable_install_is_found_through_its_finder():
    """Setuptools maps the module to its source folder in a file of its own."""
    packages, _ = found(
        "vllm-0.33.1.dist-info",
        "__editable___vllm_0_33_1_finder.py",
        files={"__editable___vllm_0_33_1_finder.py": "MAPPING = {'vllm': '/src/vllm/vllm'}\n"},
    )
    assert packages["vllm"].version == "0.33.1"
    assert packages["vllm"].usable is None


def test_flash_attention_4_alone_is_not_flash_attention_2():
    """It installs into the same folder, without the module of version 2."""
    packages, _ = found(
        "flash_attn",
        "flash_attn_4-4.0.0.dist-info",
        folders={"flash_attn": ["cute"], "flash_attn/cute": ["__init__.py", "interface.py"]},
    )
    assert packages["flash_attn"].status == "absent"
    assert packages["flash_attn_4"].version == "4.0.0"


def test_another_package_of_the_name_aiter_is_not_amds():
    """PyPI has an aiter that iterates asynchronously."""
    packages, ledger = found("aiter", "aiter-0.13.0.dist-info", folders={"aiter": ["__init__.py"]})
    assert packages["aiter"].status == "absent"
    assert "not AMD's" in packages["aiter"].reason
    assert ledger.findings == []
    packages, _ = found(
        "aiter", "amd_aiter-0.1.7.dist-info", folders={"aiter": ["__init__.py", "ops"]}
    )
    assert packages["aiter"].version == "0.1.7"


def test_parts_that_matter_stand_in_the_build():
    """FlashInfer's kernel cache and the FlashAttention that vLLM carries."""
    packages, _ = found(
        "flashinfer",
        "flashinfer_python-0.6.2.dist-info",
        "flashinfer_jit_cache-0.6.2+cu130.dist-info",
        "vllm",
        "vllm-0.33.0.dist-info",
        folders={"vllm/vllm_flash_attn": ["_vllm_fa2_C.abi3.so", "_vllm_fa3_C.abi3.so"]},
    )
    assert packages["flashinfer"].build == {"jit_cache": "0.6.2+cu130"}
    assert packages["vllm"].build == {"flash_attn": "2,3"}


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        ({}, {"cuda": "13.0"}),
        ({"version": "2.13.0+cpu", "cuda": "None", "libraries": ()}, {}),
        (
            {
                "version": "2.13.0+rocm7.2",
                "cuda": "None",
                "hip": "'7.2.1'",
                "libraries": ("libtorch_hip.so",),
            },
            {"hip": "7.2.1"},
        ),
    ],
)
def test_torch_names_its_build(build, expected):
    """CUDA, HIP or neither, out of annotated assignments."""
    package, findings = torch(**build)
    assert package.build == {**expected, "git": "0123456789"}
    assert (package.usable, findings) == (None, [])


@pytest.mark.parametrize(
    ("build", "text"),
    [
        ({"libraries": ()}, "version.py says CUDA 13.0 and torch/lib has no libtorch_cuda.so"),
        ({"cuda": "None"}, "version.py names no CUDA and torch/lib has libtorch_cuda.so"),
    ],
)
def test_a_torch_whose_libraries_are_of_another_build_is_unusable(build, text):
    """Two wheels unpacked over each other: both texts stand in the finding."""
    package, findings = torch(**build)
    assert (package.usable, package.reason) == (False, text)
    assert [(finding.code, finding.found) for finding in findings] == [
        ("package.torch.mismatch", text)
    ]


def test_torch_and_its_metadata_must_agree():
    """An upgrade that was cut short leaves the metadata of one and the files of the other."""
    ledger = Ledger()
    text = VERSION_PY.format(version="2.11.0+cu130", cuda="'13.0'", hip="None")
    names = ("torch", "torch-2.13.0.dist-info")
    probe_packages(site(*names, files={"torch/version.py": text}), ledger)
    assert [finding.code for finding in ledger.findings] == ["package.torch.metadata"]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("pynvml.py", REDIRECTOR), "package.pynvml.deprecated"),
        (("pynvml.py", "pynvml", "pynvml-11.5.3.dist-info"), "package.pynvml.clash"),
    ],
)
def test_the_deprecated_distribution_pynvml_is_named(names, code):
    """It slows every start of Python, or hides the module of nvidia-ml-py."""
    _, ledger = found(*names)
    assert [finding.code for finding in ledger.findings] == [code]
    assert "nvidia-ml-py" in ledger.findings[0].fix


def test_architectures_are_read_from_names_of_files():
    """With feature suffixes cut off, and generic targets kept whole."""
    names = ["TensileLibrary_gfx942.dat", "gfx90a-xnack+.co", "k_gfx11-generic.co", "notes.txt"]
    assert architectures(names) == {"gfx942", "gfx90a", "gfx11-generic"}


@pytest.mark.parametrize(
    ("arches", "arch", "runs"),
    [
        ({"gfx942"}, "gfx942", True),
        ({"gfx942", "gfx950"}, "gfx1201", False),
        ({"gfx9-4-generic"}, "gfx950", True),
        ({"gfx11-generic"}, "gfx1151", True),
        ({"gfx11-generic"}, "gfx1201", False),
    ],
)
def test_device_code_runs_on_its_own_architecture(arches, arch, runs):
    """Or on all of a generic target."""
    assert covers(arches, arch) is runs
    assert device_code_finding("aiter", arch, frozenset(arches)).met is runs


def gpus(**more):
    return Vendor(status="ok", source="nvml", gpus=(Gpu(index=0),), **more)


def test_a_torch_for_cpu_beside_a_gpu_is_a_finding():
    """It runs, on the wrong device."""
    package, _ = torch(version="2.13.0+cpu", cuda="None", libraries=())
    (finding,) = torch_findings({"amd": gpus()}, package)
    assert finding.code == "package.torch.platform"
    assert finding.found == "torch 2.13.0+cpu is a CPU build, and there is a GPU of AMD"
    assert torch_findings({}, package) == []


@pytest.mark.parametrize(
    ("runtime", "codes"),
    [("12.8", ["package.torch.driver"]), ("13.0", []), ("13.2", []), ("14.0", []), (None, [])],
)
def test_a_driver_must_take_the_major_version_of_torchs_cuda(runtime, codes):
    """Within one major version every minor runs."""
    package, _ = torch()
    vendor = gpus(runtime=runtime, driver="570.86.15")
    assert [f.code for f in torch_findings({"nvidia": vendor}, package)] == codes
