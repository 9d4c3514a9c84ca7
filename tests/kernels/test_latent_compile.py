"""What the kernels of latent attention become on GPUs that are not here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from attnctl.kernels.triton.crosscompile import Report

PRODUCTS = {
    "mla_decode_kernel",
    "mla_sparse_kernel",
    "mla_hopper_kernel",
    "mla_prefill_kernel",
    "index_logits_kernel",
}


@pytest.mark.parametrize(("target", "heads"), [("sm_80", 16), ("sm_90", 128), ("gfx942", 16)])
def test_every_launch_of_deepseek_compiles_within_the_shared_memory(
    target: str, heads: int, tmp_path: Path
) -> None:
    """Default tiles of all kernels; those that multiply do so on the matrix unit."""
    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    clean["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "tests.kernels.latent_compile", target, str(heads)]
    done = subprocess.run(
        command, env=clean, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    reports = [msgspec.json.decode(line, type=Report) for line in done.stdout.splitlines()]
    assert len(reports) == 10
    for report in reports:
        assert report.shared_bytes <= report.shared_limit_bytes
        assert report.spills <= 512
        assert bool(report.matrix) is (report.kernel in PRODUCTS)
