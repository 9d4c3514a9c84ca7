"""Triton's backends with tensors of the processor, outside its interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch
from attnctl.exits import InputError
from attnctl.ops.paged import Paged
from attnctl.runtime import open_backend

name = sys.argv[1]
backend = open_backend(name)
cache = torch.zeros(backend.cache_shape(2, 16, 1, 64))
one, rows = torch.ones(1, dtype=torch.int32), torch.ones(1, 1, 64)
metadata = backend.build_metadata(
    torch.tensor([0, 1], dtype=torch.int32), one, one[:, None], one.long(),
    max_query_len=1, max_seq_len=1,
)
for call in (
    lambda: backend.write_cache(rows, rows, cache, metadata, Paged(scale=1.0)),
    lambda: backend.forward(rows, cache, metadata, Paged(scale=1.0)),
):
    try:
        call()
    except InputError as error:
        print(torch.cuda.is_available(), error)
"""

LATENT_PROGRAM = """
import sys, torch
from attnctl.exits import InputError
from attnctl.ops.mla import Latent
from attnctl.runtime import open_backend

name = sys.argv[1]
backend = open_backend(name)
cache = torch.zeros(backend.cache_shape(2, 16, 32, 16))
one, rows = torch.ones(1, dtype=torch.int32), torch.ones(1, 48)
metadata = backend.build_metadata(
    torch.tensor([0, 1], dtype=torch.int32), one, one[:, None], one.long(),
    max_query_len=1, max_seq_len=1,
)
params = Latent(scale=1.0, kv_lora_rank=32)
named = [one[:, None]] if name.endswith("SPARSE") else []
for call in (
    lambda: backend.write_cache(rows[:, :32], rows[:, 32:], cache, metadata, params),
    lambda: backend.forward(rows[:, None], cache, metadata, *named, params),
):
    try:
        call()
    except InputError as error:
        print(torch.cuda.is_available(), error)
"""


@pytest.mark.parametrize(
    ("name", "program", "instead"),
    [
        ("TRITON_ATTN", PROGRAM, "CPU_ATTN"),
        ("TRITON_ATTN_DIFFKV", PROGRAM, "CPU_ATTN"),
        ("TRITON_MLA", LATENT_PROGRAM, "CPU_MLA"),
        ("TRITON_MLA_SPARSE", LATENT_PROGRAM, "CPU_MLA_SPARSE"),
    ],
)
def test_the_first_call_says_what_is_missing(name: str, program: str, instead: str) -> None:
    """The backend, the reason, the interpreter as the way to try it, and what the CPU has."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    answer = subprocess.run(
        [sys.executable, "-c", program, name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        gpu, _, sentence = line.partition(" ")
        reason = "its tensors lie on the cpu" if gpu == "True" else "no GPU driver is active"
        assert sentence.startswith(f"{name}: {reason}")
        assert "TRITON_INTERPRET=1" in sentence
        assert gpu == "True" or sentence.endswith(f"or use {instead}")
