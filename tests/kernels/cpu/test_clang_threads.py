"""Threads of kernels that Clang compiles: its calls, by hand, on the OpenMP that torch loaded.

What Clang itself makes of the kernels is `make clang`, where there is one.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from attnctl.kernels.cpu.build import CLANG_THREADS, build
from attnctl.kernels.cpu.build_compilers import compilers

# what Clang makes of a region with three dynamic loops and a static one
TEAM = """
typedef long long i64;
extern "C" {
int __kmpc_global_thread_num(void*);
void __kmpc_push_num_threads(void*, int, int);
void __kmpc_fork_call(void*, int, void (*)(int*, int*, ...), ...);
void __kmpc_serialized_parallel(void*, int);
void __kmpc_end_serialized_parallel(void*, int);
void __kmpc_barrier(void*, int);
void __kmpc_for_static_init_8(void*, int, int, int*, i64*, i64*, i64*, i64, i64);
void __kmpc_for_static_fini(void*, int);
void __kmpc_dispatch_init_8(void*, int, int, i64, i64, i64, i64);
int __kmpc_dispatch_next_8(void*, int, int*, i64*, i64*, i64*);
}
static void task(int* rank, int*, int* counts, i64* count, int* entered, i64 a, i64 b, i64 c, i64 d,
                 i64 e, i64 f) {
  if (a != 4 || b != 5 || c != 6 || d != 7 || e != 8 || f != 9) return;
  __atomic_fetch_add(entered, 1, __ATOMIC_RELAXED);
  int is_last;
  i64 from, to, step;
  for (int again = 0; again < 3; again++) {
    if (*count > 0) {
      __kmpc_dispatch_init_8(0, *rank, 0x40000023, 0, *count - 1, 1, 2);
      while (__kmpc_dispatch_next_8(0, *rank, &is_last, &from, &to, &step))
        for (i64 x = from; x <= to; x++) __atomic_fetch_add(&counts[x], 1, __ATOMIC_RELAXED);
    }
    __kmpc_barrier(0, *rank);
  }
  if (*count <= 0) return;
  from = 0, to = *count - 1;
  __kmpc_for_static_init_8(0, *rank, 34, &is_last, &from, &to, &step, 1, 1);
  for (i64 x = from; x <= to; x++) counts[x] += 10;
  __kmpc_for_static_fini(0, *rank);
}
extern "C" int team(int threads, int* counts, i64 count) {
  int entered = 0, rank = __kmpc_global_thread_num(0), zero = 0;
  if (threads > 1) {
    __kmpc_push_num_threads(0, rank, threads);
    auto given = (void (*)(int*, int*, ...))task;
    __kmpc_fork_call(0, 9, given, counts, &count, &entered, 4ll, 5ll, 6ll, 7ll, 8ll, 9ll);
  } else {
    __kmpc_serialized_parallel(0, rank);
    task(&rank, &zero, counts, &count, &entered, 4, 5, 6, 7, 8, 9);
    __kmpc_end_serialized_parallel(0, rank);
  }
  return entered;
}
"""


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The region, built by a compiler that says it is Clang and is the one of this system."""
    folder = tmp_path_factory.mktemp("team")
    real = compilers({"PATH": os.environ["PATH"]})[0][0]
    script = folder / "compiler"
    script.write_text(
        "#!/bin/sh\n[ $1 = --version ] && exec echo Debian clang version 14.0.6\n"
        f'echo "$@" >> {folder}/asked\n[ "${{NO_XCLANG:-}}" ] && exit 1\n'
        # GCC has other names for the same request: none, as nothing here is a pragma
        'for word in "$@"; do shift; case $word in -Xclang|-fopenmp) ;; *) set -- "$@" "$word";; '
        f'esac; done\nexec {real} "$@"\n'
    )
    script.chmod(0o755)
    source = folder / "team.cpp"
    source.write_text(TEAM)
    environ = {"CC": str(script), "PATH": "", "XDG_CACHE_HOME": str(folder)}
    made = build(source, (), environ)
    assert made.path is not None, made.finding
    asked = (folder / "asked").read_text().splitlines()
    assert len(asked) == 1
    assert f"-Xclang -fopenmp {source} {CLANG_THREADS} -o " in asked[0]
    return ctypes.CDLL(made.path)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_every_item_is_taken_once_by_loop_whatever_the_team(
    team: ctypes.CDLL, threads: int, count: int
) -> None:
    """All threads enter; three loops that share items as they come, one that cuts them evenly."""
    counts = (ctypes.c_int * count)()
    assert team.team(threads, counts, ctypes.c_longlong(count)) == threads
    assert list(counts) == [13] * count


def test_regions_follow_one_another(team: ctypes.CDLL) -> None:
    """What a thread was doing in the last one is forgotten."""
    counts = (ctypes.c_int * 50)()
    for again in range(1, 200):
        threads = again % 4 + 1
        assert team.team(threads, counts, ctypes.c_longlong(50)) == threads
        assert set(counts) == {13 * again}


def test_no_other_openmp_is_loaded(team: ctypes.CDLL) -> None:
    """Two would wait for work in the same cores."""
    assert team.team(2, None, ctypes.c_longlong(0)) == 2
    names = {
        Path(line.split()[-1]).name for line in Path("/proc/self/maps").read_text().splitlines()
    }
    assert len({one for one in names if one.startswith(("libgomp", "libomp", "libiomp"))}) == 1
