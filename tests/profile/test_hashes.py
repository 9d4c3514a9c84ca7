"""Hashes of kernel sources: which files a backend runs, and which edits change its hash."""

from __future__ import annotations

import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from attnctl.profile.hashes import LENGTH, KernelHashes, kernel_hashes
from attnctl.profile.keys import DeviceKind
from attnctl.registry import Backend, Registry, load
from tests.commands.running import ROOT

KERNELS = ROOT / "attnctl" / "kernels"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the shared kernels that a test may edit."""
    return Path(shutil.copytree(KERNELS, tmp_path / "kernels"))


KINDS: tuple[DeviceKind, ...] = ("cpu", "gpu")


def changed(registry: Registry, copied: Path, edited: str) -> dict[DeviceKind, set[str]]:
    """Kind of device -> the backends whose hash there an edit of one shared file changes."""
    before = {kind: kernel_hashes(registry, kind, hashes=KernelHashes(copied)) for kind in KINDS}
    with (copied / edited).open("a") as file:
        file.write("\n# edited\n")
    after = {kind: kernel_hashes(registry, kind, hashes=KernelHashes(copied)) for kind in KINDS}
    assert {kind: set(found) for kind, found in before.items()} == {
        kind: set(found) for kind, found in after.items()
    }
    return {
        kind: {name for name, hashed in before[kind].items() if after[kind][name] != hashed}
        for kind in KINDS
    }


def test_every_backend_with_a_kernel_has_a_hash_and_no_other_has() -> None:
    """A planned backend runs nothing, so that there is nothing to hash."""
    registry = load()
    written = {b.name for b in registry.backends if b.kernel != "planned"}
    for kind in KINDS:
        hashes = kernel_hashes(registry, kind)
        assert set(hashes) == written
        assert {len(value) for value in hashes.values()} == {LENGTH}


def test_the_hash_does_not_depend_on_where_the_kernels_lie(copied: Path) -> None:
    """A copy elsewhere of the same sources has the same hashes."""
    registry = load()
    for kind in KINDS:
        there = kernel_hashes(registry, kind, hashes=KernelHashes(copied))
        assert there == kernel_hashes(registry, kind)


@pytest.mark.parametrize(
    ("edited", "kind", "hit", "spared"),
    [
        ("triton/paged/decode.py", "gpu", {"TRITON_ATTN", "TRITON_ATTN_DIFFKV"}, {"CPU_ATTN"}),
        ("cpu/paged.cpp", "cpu", {"CPU_ATTN", "CPU_MLA"}, {"TRITON_ATTN", "GDN_ATTN"}),
        ("cpu/latent.cpp", "cpu", {"CPU_MLA", "CPU_MLA_SPARSE"}, {"CPU_ATTN", "GDN_ATTN"}),
        ("cpu/states.cpp", "cpu", {"GDN_ATTN", "SHORT_CONV_ATTN"}, {"CPU_ATTN"}),
        ("cpu/vectors.h", "cpu", {"GDN_ATTN", "CPU_ATTN", "CPU_MLA"}, {"TRITON_ATTN"}),
        ("cpu/build.py", "cpu", {"GDN_ATTN", "CPU_ATTN", "CPU_MLA"}, {"TRITON_ATTN"}),
        ("triton/states/gdn.py", "gpu", {"GDN_ATTN"}, {"MAMBA1_ATTN", "TRITON_ATTN"}),
        ("eager/mamba1.py", "cpu", {"MAMBA1_ATTN"}, {"MAMBA2_ATTN", "GDN_ATTN"}),
        ("triton/states/rows.py", "gpu", {"MAMBA1_ATTN", "MAMBA2_ATTN"}, {"TRITON_ATTN"}),
        ("rivals/fla.py", "gpu", {"GDN_ATTN"}, {"TRITON_ATTN", "TRITON_MLA"}),
        ("paged/flash.py", "gpu", {"FLASH_ATTN", "FLASHINFER"}, {"TRITON_ATTN", "CPU_ATTN"}),
        ("triton/latent/prefill.py", "gpu", {"TRITON_MLA", "FLASHMLA"}, {"TRITON_MLA_SPARSE"}),
        ("latent/aiter.py", "gpu", {"ROCM_AITER_MLA"}, {"FLASHMLA", "TRITON_MLA"}),
    ],
)
def test_an_edited_kernel_changes_its_own_backends_only(
    copied: Path, edited: str, kind: DeviceKind, hit: set[str], spared: set[str]
) -> None:
    """What is imported lazily, by a name made at run time, or as C++ source counts as well."""
    found = changed(load(), copied, edited)[kind]
    assert hit <= found
    assert not spared & found


@pytest.mark.parametrize(
    ("edited", "kind"),
    [
        ("triton/states/gdn.py", "cpu"),
        ("triton/launch.py", "cpu"),
        ("rivals/fla.py", "cpu"),
        ("cpu/states.cpp", "gpu"),
        ("cpu/build.py", "gpu"),
        ("cpu/vectors.h", "gpu"),
        ("eager/gdn.py", "gpu"),
    ],
)
def test_what_the_other_kind_of_device_runs_changes_no_hash(
    copied: Path, edited: str, kind: DeviceKind
) -> None:
    """A backend that computes on both has timings of each that outlive edits for the other."""
    other: DeviceKind = "gpu" if kind == "cpu" else "cpu"
    found = changed(load(), copied, edited)
    assert found[kind] == set()
    assert "GDN_ATTN" in found[other]


@pytest.mark.parametrize("edited", ["states/runtime.py", "latent/cache.py"])
def test_the_host_side_of_both_kinds_changes_both(copied: Path, edited: str) -> None:
    """What calls a kernel is a part of the time that it takes, wherever it computes."""
    found = changed(load(), copied, edited)
    assert found["cpu"]
    assert found["gpu"]


def test_a_lone_module_is_hashed_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plug-in of one file has that file for its kernel's source."""
    source = tmp_path / "lone.py"
    source.write_text("from attnctl.kernels.triton.paged import decode\n")
    module = types.ModuleType("lone")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "lone", module)
    backend = Backend(name="LONE", summary="s", ops=("paged",), rules=(), module="lone")
    files = KernelHashes().files(backend, "gpu")
    assert {source, KERNELS / "triton/paged/decode.py"} <= files
    assert KernelHashes().files(backend, "cpu") == {source}
    first = KernelHashes().of(backend, "gpu")
    source.write_text("1\n")
    assert KernelHashes().of(backend, "gpu") != first


def test_hashing_imports_no_kernel() -> None:
    """The text is read; nothing of it runs, and no torch is loaded."""
    code = (
        "import sys\n"
        "for name in ('torch', 'triton', 'numpy'): sys.modules[name] = None\n"
        "from attnctl.profile.hashes import kernel_hashes\n"
        "from attnctl.registry import load\n"
        "assert kernel_hashes(load(), 'gpu')\n"
        "print([name for name in sys.modules if name.startswith('attnctl.kernels')])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_what_a_backend_only_declares_is_no_kernel() -> None:
    """Nothing that it takes, nor what smoke compiles of it, is a source that a batch runs."""
    backend = next(one for one in load().backends if one.name == "TRITON_ATTN")
    files = KernelHashes().files(backend, "gpu")
    own = {path.name for path in files if path.parent.name == "triton_attn"}
    assert own == {"kernel.py"}
    assert {"decode.py", "prefill.py"} <= {path.name for path in files}


@pytest.mark.parametrize("edited", ["paged/checks.py", "batch_checks.py", "cpu/checks.py"])
def test_what_refuses_a_call_is_no_kernel(copied: Path, edited: str) -> None:
    """Checks launch nothing, so that timings outlive an edit of theirs."""
    assert (copied / edited).is_file()
    assert changed(load(), copied, edited) == {"cpu": set(), "gpu": set()}
