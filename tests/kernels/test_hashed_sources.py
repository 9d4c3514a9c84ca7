"""A hash of kernel sources counts what a run really loads, on each kind of device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnctl.profile.hashes import KernelHashes
from attnctl.profile.keys import DeviceKind
from attnctl.registry import load
from tests.commands.running import ROOT

KERNELS = ROOT / "attnctl" / "kernels"
RUN = """
import sys
import torch
from attnctl.ops.case import split_case
from attnctl.ops.catalog import case_of, try_case
from attnctl.runtime import open_backend
torch.set_num_threads(1)
found = try_case(open_backend(sys.argv[1]), case_of(*split_case(sys.argv[2])), "cpu")
assert found.verdict == "pass", found
for name, module in list(sys.modules.items()):
    if name.startswith("attnctl.kernels"):
        print(module.__file__)
"""


def loaded(*words: str, interpreted: bool) -> set[Path]:
    """The sources of kernels that a child's program has loaded, less what launches nothing."""
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if interpreted:
        environ["TRITON_INTERPRET"] = "1"
    ran = subprocess.run(
        [sys.executable, "-c", *words],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    files = map(Path, ran.stdout.split())
    return {one for one in files if not one.name.endswith(("checks.py", "__init__.py"))}


@pytest.mark.parametrize(
    ("backend", "case", "kind"),
    [
        ("CPU_ATTN", "paged(page=32)", "cpu"),
        ("CPU_MLA", "mla()", "cpu"),
        ("CPU_MLA_SPARSE", "mla_sparse()", "cpu"),
        ("GDN_ATTN", "gdn()", "cpu"),
        ("MAMBA1_ATTN", "mamba1()", "cpu"),
        ("SHORT_CONV_ATTN", "short_conv()", "cpu"),
        ("GDN_ATTN", "gdn()", "gpu"),
        ("SHORT_CONV_ATTN", "short_conv()", "gpu"),
        ("TRITON_ATTN", "paged()", "gpu"),
    ],
)
def test_what_a_run_loads_is_hashed(backend: str, case: str, kind: DeviceKind) -> None:
    """A GPU's side runs in Triton's interpreter; nothing that it loads is passed over."""
    here = next(one for one in load().backends if one.name == backend)
    ran = loaded(RUN, backend, case, interpreted=kind == "gpu")
    folders = {one.relative_to(KERNELS).parts[0] for one in ran}
    assert ("triton" if kind == "gpu" else "cpu") in folders
    assert ran <= KernelHashes().files(here, kind)
