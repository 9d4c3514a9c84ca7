"""`attnctl smoke`: what is refused before a backend is tried, and what it lists."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from attnctl.registry import load
from attnctl.smoke.planning import runnable_backends
from tests.commands.running import LLAMA, MODELS, run

ON = ("smoke", "--backend", "CPU_ATTN")
COMPILE = ("smoke", "--compile-for", "sm_90")


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (("--self-test",), "torch"),
        (("--compile-for", "sm_90"), "torch"),
        (("--compile-for", "sm_90"), "triton"),
    ],
)
def test_a_missing_compiler_is_one_sentence_and_not_a_failure_of_every_case(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], package: str
) -> None:
    """It names the package and how to get it; no kernel is blamed."""
    monkeypatch.setitem(sys.modules, package, None)
    found = run("smoke", *words)
    assert (found.code, found.out) == (2, "")
    needs = f"attnctl: {words[0]} needs {package}: pip install 'attnctl[kernels]'\n"
    assert found.err == needs


@pytest.mark.parametrize(
    ("option", "more"),
    [
        ("--model", ()),
        ("--baseline", ("--compile-for", "sm_90")),
        ("--journal", ("--compile-for", "sm_90", "--every-knob")),
    ],
)
def test_a_junit_file_never_takes_the_place_of_what_is_read(
    tmp_path: Path, option: str, more: tuple[str, ...]
) -> None:
    """A model's file or an earlier report stays as it was."""
    read = tmp_path / "config.json"
    read.write_bytes(Path(LLAMA).read_bytes())
    found = run("smoke", "--backend", "CPU_ATTN", *more, option, str(read), "--junit", str(read))
    assert found.code == 2
    assert found.err == f"attnctl: --junit {read}: it is the {option}; name another file\n"
    assert read.read_bytes() == Path(LLAMA).read_bytes()


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


def test_a_list_of_one_operation_names_no_other() -> None:
    """Backends that do not compute it have no case."""
    found = run("smoke", "--all", "--op", "mamba2", "--list")
    cases = [line.strip() for line in found.out.splitlines() if "(" in line and "=" in line]
    assert cases
    assert all(case.startswith("mamba2(") for case in cases)


def test_the_cases_of_a_model_are_of_its_own_layers() -> None:
    """Every backend is asked about them."""
    found = run(*ON, "--model", str(MODELS / "gemma-2-9b.json"), "--list")
    lines = found.out.splitlines()[1:]
    assert found.code == 0
    assert all("heads=16,kv_heads=8,head_size=256" in line for line in lines)
    assert any("softcap=50.0" in line for line in lines)


def test_support_counts_what_each_backend_takes_and_says_why_not_more() -> None:
    """A row per backend and operation."""
    found = run(*ON, "--support")
    rows = {line.split()[2]: line for line in found.out.splitlines()[1:]}
    assert set(rows) == {"paged", "diffkv"}
    assert " of " in rows["paged"]
    assert found.code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--journal", "j"), "smoke: --journal needs --every-knob: other runs are short"),
        (("--jobs", "0"), "--jobs 0: must be from 1 to 64 children"),
        (("--jobs", "65"), "--jobs 65: must be from 1 to 64 children"),
    ],
)
def test_what_makes_no_compilation_is_refused(words: tuple[str, ...], says: str) -> None:
    """Before anything is looked at."""
    found = run(*COMPILE, *words)
    assert (found.code, found.out, found.err) == (2, "", f"attnctl: {says}\n")


def test_jobs_are_of_a_compilation_alone() -> None:
    """A run of kernels has a child a backend."""
    found = run(*ON, "--jobs", "2")
    assert found.code == 2
    assert "--jobs needs --compile-for" in found.err


def test_a_compilation_is_listed_without_compiling() -> None:
    """Each backend with kernels of ours, for each target; refused cases with their status."""
    found = run("smoke", "--compile-for", "sm_80,gfx942", "--list")
    heads = [line for line in found.out.splitlines() if line and not line.startswith(" ")]
    assert "TRITON_ATTN: 19 cases, compile for sm_80" in heads
    assert "GDN_ATTN: 7 cases, compile for gfx942" in heads
    assert len(set(heads)) == len(heads)
    assert "kv_cache_dtype=fp8_e4m3) [unsupported]" in found.out
    assert found.code == 0
