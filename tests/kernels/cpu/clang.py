"""Runs the processor's C++ kernels as Clang compiles them, on smoke's cases and three threads.

python -m tests.kernels.cpu.clang [BACKEND ...]: exit status 0 where no case is wrong.
Needs clang, or CC that is one; no test by name, as it is rarely there.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch

from attnctl.kernels.cpu.build import build
from attnctl.runtime import open_backend
from tests.kernels.cpu.arm import BACKENDS, FINE, cases_of, verdict_of

THREADS = 3
TEAM = """
extern "C" int team(int threads, int* counts, long long count) {
  int entered = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    __atomic_fetch_add(&entered, 1, __ATOMIC_RELAXED);
    for (int again = 0; again < 3; again++) {
#pragma omp for schedule(dynamic, 2)
      for (long long x = 0; x < count; x++) __atomic_fetch_add(&counts[x], 1, __ATOMIC_RELAXED);
    }
#pragma omp for
    for (long long x = 0; x < count; x++) counts[x] += counts[count - 1 - x] >= 0;
  }
  return entered;
}
"""


def compiler() -> str:
    """CC where it is set, else clang."""
    return os.environ.get("CC") or shutil.which("clang") or sys.exit("no clang here")


def wrong_teams(folder: str) -> int:
    """How many sizes of a team and a loop are not as OpenMP has them; says which."""
    source = Path(folder, "team.cpp")
    source.write_text(TEAM)
    made = build(source, (), dict(os.environ))
    print(made.finding.found, flush=True)
    if made.path is None or "clang" not in made.finding.found:
        return 1
    team, bad = ctypes.CDLL(made.path).team, 0
    for threads in (1, 2, THREADS, 8):
        for count in (0, 1, 2, 7, 1000):
            counts = (ctypes.c_int * count)()
            entered = team(threads, counts, ctypes.c_longlong(count))
            if entered != threads or set(counts) - {4}:
                print(f"{threads} threads, {count}: {entered} entered, {set(counts)}", flush=True)
                bad += 1
    return bad


def runtimes() -> set[str]:
    """The libraries of OpenMP that this process has loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    names = {Path(line.split()[-1]).name for line in lines}
    return {name for name in names if name.startswith(("libgomp", "libomp", "libiomp"))}


def tried(backend: str) -> int:
    """How many cases are wrong; says how many of each verdict."""
    runtime, counts = open_backend(backend), Counter[str]()
    built = runtime.finding().found
    for text in cases_of(backend):
        verdict, detail = verdict_of(runtime, text)
        counts[verdict] += 1
        if verdict not in FINE:
            print(f"{backend} {text}: {verdict} {detail}", flush=True)
    said = ", ".join(f"{n} {what}" for what, n in counts.items())
    print(f"{backend}: {said}; {built}", flush=True)
    clang = "clang" in built and "-fopenmp" in built
    return sum(n for what, n in counts.items() if what not in FINE) + (not clang)


def main(backends: list[str]) -> int:
    os.environ["CC"] = compiler()
    warnings.simplefilter("error")
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        bad = wrong_teams(folder)
        bad += sum(tried(backend) for backend in backends or BACKENDS)
    print(f"OpenMP: {', '.join(sorted(runtimes()))}", flush=True)
    return 1 if bad or len(runtimes()) != 1 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
