"""Compiles a load of each FP8 format for targets that need not be here; run as a script.

Prints one line per target and format: "cuda 80 fp8e5 ok", or the compiler's refusal in its place.
"""

import sys

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253
from triton.backends.compiler import GPUTarget  # noqa: TID253
from triton.compiler import ASTSource  # noqa: TID253

WIDTH = 128


@triton.jit
def widen(source, target, N: tl.constexpr):  # noqa: N803
    at = tl.arange(0, N)
    tl.store(target + at, tl.load(source + at).to(tl.float32))


def attempt(kind: str, arch: str, warp: int, fmt: str) -> str:
    signature = {"source": f"*{fmt}", "target": "*fp32", "N": "constexpr"}
    device = GPUTarget(kind, int(arch) if kind == "cuda" else arch, warp)
    try:
        triton.compile(ASTSource(widen, signature, {"N": WIDTH}), target=device)
    except Exception as error:  # the compiler's own classes differ from release to release
        return " ".join(f"{type(error).__name__}: {error}".split())
    return "ok"


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        kind, arch, warp, fmt = wanted.split(":")
        print(kind, arch, fmt, attempt(kind, arch, int(warp), fmt))
