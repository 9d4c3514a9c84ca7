"""Building the C++ kernels: compilers, flags, the cache, and what happens where one is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from attnctl.backends.cpu_attn.kernel import CpuAttention
from attnctl.exits import InputError
from attnctl.findings import Verdict
from attnctl.kernels.cpu.build import (
    Built,
    build,
    build_here,
    compiler_environ,
    isa_flags,
)
from attnctl.kernels.cpu.build_compilers import compilers
from attnctl.kernels.cpu.build_tiles import build_tiles
from attnctl.ops.paged import Paged
from attnctl.probe.host import HostError
from attnctl.probe.realhost import RealHost

PATH = os.environ["PATH"]


class HostWithEnvironment:
    """This machine with another environment."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._environ, self._real = environ, RealHost()

    def ask(self, op: str, *args: Any) -> Any:
        return self._environ.get(args[0]) if op == "env" else self._real.ask(op, *args)


def test_a_second_build_is_found_in_the_cache(source: Path, tmp_path: Path) -> None:
    """The same source, flags and compiler give the same file without a compile."""
    environ = {"PATH": PATH, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first, second = build(source, (), environ), build(source, (), environ)
    assert first.finding.verdict is Verdict.MET, first
    assert (first.cached, second.cached) == (False, True)
    assert first.path == second.path
    assert len(list((tmp_path / "cache" / "attnctl").iterdir())) == 1


def test_the_cache_is_keyed_by_source_and_flags(source: Path, tmp_path: Path) -> None:
    """Another flag or another source is another file."""
    environ = {"PATH": PATH, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    paths = {build(source, (), environ).path, build(source, ("-DX",), environ).path}
    source.write_text(source.read_text().replace("42", "43"))
    paths.add(build(source, (), environ).path)
    assert len(paths) == 3
    assert None not in paths


def test_builds_at_the_same_time_do_not_meet(source: Path, tmp_path: Path) -> None:
    """Four processes that build together all load a whole file, and one file is left."""
    text = (
        "import ctypes, os, pathlib, sys\n"
        "from attnctl.kernels.cpu.build import build\n"
        "made = build(pathlib.Path(sys.argv[1]), (), dict(os.environ))\n"
        "assert ctypes.CDLL(made.path).answer() == 42\n"
    )
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    line = [sys.executable, "-c", text, str(source)]
    running = [subprocess.Popen(line, env=environ, cwd=Path.cwd()) for _ in range(4)]
    assert [child.wait(timeout=120) for child in running] == [0, 0, 0, 0]
    assert [path.suffix for path in (tmp_path / "cache" / "attnctl").iterdir()] == [".so"]


def test_without_a_compiler_the_finding_says_what_was_looked_for(
    source: Path, tmp_path: Path
) -> None:
    """An empty PATH: no file, and a fix."""
    made = build(source, (), {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})
    assert made.path is None
    assert made.finding.verdict is Verdict.UNMET
    assert "gcc" in made.finding.found
    assert "CC" in made.finding.fix


def test_a_compiler_that_fails_is_quoted(
    source: Path, tmp_path: Path, script: Callable[[str, str], Path]
) -> None:
    """The first error line of the compiler is the finding."""
    bad = script("bad-cc", "echo 'cc1plus: error: out of cheese' >&2; exit 1")
    environ = {"CC": str(bad), "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    made = build(source, ("-mavx2",), environ)
    assert made.path is None
    assert "error: out of cheese" in made.finding.found


def test_a_compiler_without_openmp_or_the_flags_builds_with_fewer(
    source: Path, tmp_path: Path, script: Callable[[str, str], Path]
) -> None:
    """A compiler that refuses some flags is asked again without them, and the finding says so."""
    real = compilers({"PATH": PATH})[0][0]
    picky = script("picky", f'case "$*" in *-fopenmp*) exit 1;; esac\nPATH={PATH} exec {real} "$@"')
    environ = {"CC": str(picky), "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    made = build(source, ("-DX",), environ)
    assert made.path is not None
    assert made.finding.found.endswith(", -DX")


def test_a_compiler_that_writes_nothing_is_a_failure(
    source: Path, tmp_path: Path, script: Callable[[str, str], Path]
) -> None:
    """Exit status 0 and an empty file is no build."""
    environ = {"CC": str(script("lazy", "exit 0")), "PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    assert build(source, (), environ).path is None
    assert list((tmp_path / "attnctl").iterdir()) == []


def test_cc_comes_first_and_may_hold_arguments(
    tmp_path: Path, script: Callable[[str, str], Path]
) -> None:
    """CC="ccache gcc" is one command; compilers that are not there are left out."""
    first, second = script("mycc", ""), script("gcc", "")
    found = compilers({"CC": f"{first} -m64", "PATH": str(tmp_path)})
    assert found == [(str(first), "-m64"), (str(second),)]


class HostWithoutPath(HostWithEnvironment):
    """A machine that does not say one of its variables."""

    def ask(self, op: str, *args: Any) -> Any:
        if args[0] == "PATH":
            raise HostError("denied", "no")
        return super().ask(op, *args)


def test_of_the_environment_a_build_takes_what_it_depends_on() -> None:
    """Variables that are set; one that is not told is as one that is not set."""
    environ = {"CC": "clang", "PATH": "/bin", "HOME": "/root", "LD_LIBRARY_PATH": "/lib"}
    assert compiler_environ(HostWithEnvironment(environ)) == {
        "CC": "clang",
        "PATH": "/bin",
        "HOME": "/root",
    }
    assert compiler_environ(HostWithoutPath(environ)) == {"CC": "clang", "HOME": "/root"}


@pytest.mark.parametrize("make", [build_here, build_tiles])
def test_both_ways_to_build_ask_the_hosts_environment(
    make: Callable[[Any, Path], Built], source: Path, tmp_path: Path
) -> None:
    """A machine without a compiler has none in either."""
    made = make(HostWithEnvironment({"PATH": str(tmp_path), "TMPDIR": str(tmp_path)}), source)
    assert made.finding.found.startswith("there is no compiler")


def test_flags_follow_what_is_usable() -> None:
    """AVX-512 only as a whole, nothing that the probe did not find, nothing on other processors."""
    avx2 = ("avx2", "fma", "f16c")
    assert isa_flags("x86_64", avx2) == ("-mavx2", "-mfma", "-mf16c")
    assert isa_flags("x86_64", (*avx2, "avx512f")) == ("-mavx2", "-mfma", "-mf16c")
    wide = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
    assert "-mavx512vl" in isa_flags("x86_64", avx2 + wide)
    assert isa_flags("x86_64", ()) == ()
    assert isa_flags("riscv64", ("v",)) == ()


def test_the_kernels_build_without_any_instruction_flag(tmp_path: Path) -> None:
    """A machine whose processor is unknown gets plain code that gives right results."""
    from attnctl.kernels.cpu.call import NativeKernels
    from attnctl.kernels.cpu.paged import SOURCE
    from tests.kernels.cpu.batches import judge

    environ = {"PATH": PATH, "XDG_CACHE_HOME": str(tmp_path)}
    made = build(SOURCE, (), environ)
    assert made.path is not None, made
    kernels = NativeKernels(made.path)
    for kind in ("auto", "fp8", "fp8_e5m2", "int8_per_token_head"):
        result = judge(
            kernels, dtype="float16", kv_cache_dtype=kind, queries="1+20", contexts="70+66"
        )
        assert result.verdict == "pass", result


def test_a_backend_without_a_compiler_says_so_once_and_computes(tmp_path: Path) -> None:
    """One warning with the reason, then plain torch."""
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    runtime = CpuAttention(HostWithEnvironment(environ))
    shape = runtime.cache_shape(2, 32, 1, 16)
    cache = torch.zeros(shape)
    metadata = runtime.build_metadata(
        torch.tensor([0, 1]),
        torch.tensor([1]),
        torch.tensor([[1]]),
        torch.tensor([32]),
        max_query_len=1,
        max_seq_len=1,
    )
    key, value = torch.ones(1, 1, 16), torch.arange(16.0).view(1, 1, 16)
    params = Paged(scale=0.25)
    with pytest.warns(UserWarning, match="plain torch, slowly: there is no compiler"):
        runtime.write_cache(key, value, cache, metadata, params)
    out = runtime.forward(torch.ones(1, 4, 16), cache, metadata, params)
    assert torch.equal(out, value.expand(1, 4, 16))
    assert runtime.finding().verdict is Verdict.UNMET


def test_pages_that_are_no_multiple_of_32_are_refused() -> None:
    """The sentence has both numbers and the next one that works."""
    runtime = CpuAttention()
    with pytest.raises(InputError, match=r"multiple of 32; it is 40. Try 64"):
        runtime.cache_shape(1, 40, 1, 64)
    assert runtime.cache_shape(3, 64, 2, 192, 128) == (3, 64, 2, 320)
    assert sorted(runtime.cache_stride_order()) == [0, 1, 2, 3]


def test_a_compiler_whose_quotes_do_not_end_is_none(
    tmp_path: Path, script: Callable[[str, str], Path]
) -> None:
    """CC='gcc "' is passed over, and the next compiler found."""
    second = script("gcc", "")
    assert compilers({"CC": 'gcc "', "PATH": str(tmp_path)}) == [(str(second),)]
