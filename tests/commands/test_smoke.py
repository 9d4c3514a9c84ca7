"""`attnctl smoke`: what is refused before a backend is tried, and what it lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnctl.registry import load
from attnctl.smoke import runnable_backends
from tests.commands.running import run

ON = ("smoke", "--backend", "CPU_ATTN")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*ON, "--case", "gdn()"), "CPU_ATTN does not compute gdn; it computes paged, diffkv"),
        (
            (*ON, "--case", "paged()", "--case", "mla()"),
            "mla(): CPU_ATTN does not compute mla; it computes paged, diffkv",
        ),
        (
            (*ON, "--backend", "GDN_ATTN", "--case", "gdn()", "--case", "linear()"),
            "linear(): none of CPU_ATTN, GDN_ATTN computes linear",
        ),
        ((*ON, "--all"), "--all and --backend name different runs"),
        ((*ON, "--case", "paged(heads=7)"), "heads must be a multiple of kv_heads, found 7 and 2"),
        ((*ON, "--case", "paged(page=0)"), "page must be a whole number from 1"),
        ((*ON, "--case", "paged(page=8,page=16)"), "page is given twice"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(words: tuple[str, ...], sentence: str) -> None:
    """One line on standard error, exit code 2, and nothing was run."""
    found = run(*words)
    assert sentence in found.err
    assert found.err.count("\n") == 1
    assert (found.code, found.out) == (2, "")


def test_a_junit_file_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    """Its folder is missing, or it is itself a folder."""
    missing = run(*ON, "--junit", str(tmp_path / "absent" / "smoke.xml"))
    folder = run(*ON, "--junit", str(tmp_path))
    assert "its folder does not exist" in missing.err
    assert "it is a folder" in folder.err
    assert (missing.code, missing.out, folder.code, folder.out) == (2, "", 2, "")


def test_a_quick_list_names_every_backend_with_kernels() -> None:
    """Each with cases, or with the reason why it has none."""
    found = run("smoke", "--all", "--quick", "--list")
    lines = found.out.splitlines()
    for backend in runnable_backends(load()):
        (place,) = (n for n, x in enumerate(lines) if x.startswith(f"{backend.name}: "))
        runs_none = lines[place].startswith(f"{backend.name}: 0 cases")
        assert runs_none == (lines[place + 1].lstrip()[:1].isdigit())
    assert found.code == 0
