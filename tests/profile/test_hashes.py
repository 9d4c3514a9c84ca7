"""Hashes of kernel sources: which files a backend runs, and which edits change its hash."""

from __future__ import annotations

import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from attnctl.profile.hashes import LENGTH, KernelHashes, kernel_hashes
from attnctl.registry import Backend, Registry, load
from tests.commands.running import ROOT

KERNELS = ROOT / "attnctl" / "kernels"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the shared kernels that a test may edit."""
    return Path(shutil.copytree(KERNELS, tmp_path / "kernels"))


def changed(registry: Registry, copied: Path, edited: str) -> set[str]:
    """The backends whose hash an edit of one shared file changes."""
    before = kernel_hashes(registry, hashes=KernelHashes(copied))
    with (copied / edited).open("a") as file:
        file.write("\n# edited\n")
    after = kernel_hashes(registry, hashes=KernelHashes(copied))
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_every_backend_with_a_kernel_has_a_hash_and_no_other_has() -> None:
    """A planned backend runs nothing, so that there is nothing to hash."""
    registry = load()
    hashes = kernel_hashes(registry)
    written = {b.name for b in registry.backends if b.kernel != "planned"}
    assert set(hashes) == written
    assert {len(value) for value in hashes.values()} == {LENGTH}


def test_the_hash_does_not_depend_on_where_the_kernels_lie(copied: Path) -> None:
    """A copy elsewhere of the same sources has the same hashes."""
    registry = load()
    assert kernel_hashes(registry, hashes=KernelHashes(copied)) == kernel_hashes(registry)


@pytest.mark.parametrize(
    ("edited", "hit", "spared"),
    [
        ("triton/decode.py", {"TRITON_ATTN", "TRITON_ATTN_DIFFKV"}, {"CPU_ATTN"}),
        ("cpu/paged.cpp", {"CPU_ATTN", "CPU_MLA"}, {"TRITON_ATTN", "TRITON_MLA", "GDN_ATTN"}),
        ("cpu/latent.cpp", {"CPU_MLA", "CPU_MLA_SPARSE"}, {"TRITON_MLA", "CPU_ATTN", "GDN_ATTN"}),
        ("cpu/states.cpp", {"GDN_ATTN", "SHORT_CONV_ATTN"}, {"TRITON_ATTN", "CPU_ATTN"}),
        ("cpu/vectors.h", {"GDN_ATTN", "CPU_ATTN", "CPU_MLA"}, {"TRITON_ATTN", "TRITON_MLA"}),
        ("triton/gdn.py", {"GDN_ATTN"}, {"MAMBA1_ATTN", "MAMBA2_ATTN", "TRITON_ATTN"}),
        ("eager/mamba1.py", {"MAMBA1_ATTN"}, {"MAMBA2_ATTN", "GDN_ATTN"}),
        ("triton/state_rows.py", {"MAMBA1_ATTN", "MAMBA2_ATTN"}, {"TRITON_ATTN", "CPU_ATTN"}),
        ("rivals/fla.py", {"GDN_ATTN"}, {"TRITON_ATTN", "CPU_ATTN", "TRITON_MLA"}),
        ("flash.py", {"FLASH_ATTN", "FLASHINFER"}, {"TRITON_ATTN", "CPU_ATTN"}),
        ("triton/mla_prefill.py", {"TRITON_MLA", "FLASHMLA"}, {"TRITON_MLA_SPARSE", "CPU_MLA"}),
        ("aiter_latent.py", {"ROCM_AITER_MLA"}, {"FLASHMLA", "TRITON_MLA"}),
    ],
)
def test_an_edited_kernel_changes_its_own_backends_only(
    copied: Path, edited: str, hit: set[str], spared: set[str]
) -> None:
    """What is imported lazily, by a name made at run time, or as C++ source counts as well."""
    found = changed(load(), copied, edited)
    assert hit <= found
    assert not spared & found


def test_a_lone_module_is_hashed_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plug-in of one file has that file for its kernel's source."""
    source = tmp_path / "lone.py"
    source.write_text("from attnctl.kernels.triton import decode\n")
    module = types.ModuleType("lone")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "lone", module)
    backend = Backend(name="LONE", summary="s", ops=("paged",), rules=(), module="lone")
    files = KernelHashes().files(backend)
    assert {source, KERNELS / "triton" / "decode.py"} <= files
    first = KernelHashes().of(backend)
    source.write_text("1\n")
    assert KernelHashes().of(backend) != first


def test_hashing_imports_no_kernel() -> None:
    """The text is read; nothing of it runs, and no torch is loaded."""
    code = (
        "import sys\n"
        "for name in ('torch', 'triton', 'numpy'): sys.modules[name] = None\n"
        "from attnctl.profile.hashes import kernel_hashes\n"
        "from attnctl.registry import load\n"
        "assert kernel_hashes(load())\n"
        "print([name for name in sys.modules if name.startswith('attnctl.kernels')])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_what_a_backend_only_declares_is_no_kernel() -> None:
    """Nothing that it takes, nor what smoke compiles of it, is a source that a batch runs."""
    backend = next(one for one in load().backends if one.name == "TRITON_ATTN")
    files = KernelHashes().files(backend)
    own = {path.name for path in files if path.parent.name == "triton_attn"}
    assert own == {"kernel.py"}
    assert {"decode.py", "prefill.py"} <= {path.name for path in files}


@pytest.mark.parametrize("edited", ["paged_checks.py", "batch_checks.py", "cpu/checks.py"])
def test_what_refuses_a_call_is_no_kernel(copied: Path, edited: str) -> None:
    """Checks launch nothing, so that timings outlive an edit of theirs."""
    assert (copied / edited).is_file()
    assert changed(load(), copied, edited) == set()
