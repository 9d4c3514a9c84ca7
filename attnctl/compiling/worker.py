"""The child process of cross-compilation: the only part of it that imports torch and triton.

Reads lines of backend, target, bytes that a thread may spill and case, and answers as
attnctl.smoke.worker does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import msgspec

from attnctl.compiling.report import NO_LAUNCH, Launched
from attnctl.smoke.trials import Ready, Trial
from attnctl.smoke.worker import private_answers, say


def serving(serve: Callable[[IO[bytes]], None]) -> int:
    """The exit code of a child that compiles: `serve` answers its parent until there is no more."""
    answers = private_answers()
    _settle()
    try:
        serve(answers)
    except Exception as error:  # the parent turns it into a sentence
        say(answers, Ready(ok=False, detail=f"{type(error).__name__}: {error}"))
        return 1
    return 0


def _settle() -> None:
    """Gives Triton another cache where its own cannot be written: nothing compiles without one."""
    root = os.environ.get("TRITON_HOME") or os.path.expanduser("~")  # noqa: PTH111
    own = os.environ.get("TRITON_CACHE_DIR") or f"{root}/.triton/cache"
    try:
        Path(own).mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=own):
            return
    except OSError:
        from attnctl.kernels.cpu.build_folders import cache_folder

        instead = cache_folder(os.environ)
    if instead is not None:
        os.environ["TRITON_CACHE_DIR"] = str(instead / "triton")


def _serve(answers: IO[bytes]) -> None:
    import torch
    import triton

    from attnctl.compiling.compiler import Compiler
    from attnctl.compiling.targets import archs, stand_in

    known, compilers = archs(), dict[str, Compiler]()
    versions = str(torch.__version__), str(triton.__version__)
    say(answers, Ready(ok=True, torch=versions[0], triton=versions[1]))
    for line in sys.stdin:
        backend, target, most, text = line.strip().split(" ", 3)
        compilers.setdefault(target, Compiler(stand_in(target, known)))
        start = time.perf_counter()
        trial = _tried(compilers[target], backend, text, int(most))
        say(answers, msgspec.structs.replace(trial, seconds=time.perf_counter() - start))


def _tried(compiler: Any, backend: str, text: str, most_spills_bytes: int) -> Trial:
    from attnctl.compiling.record import case_launches
    from attnctl.ops.case import split_case
    from attnctl.ops.catalog import case_of
    from attnctl.runtime import open_backend

    done: list[Launched] = []
    kernel = ""
    try:
        case = case_of(*split_case(text))
        for launch in case_launches(open_backend(backend), case, compiler.machine):
            kernel = f"{launch.kernel.__name__}: "
            done.append(compiler.compile(launch))
    except Exception as error:  # one case's error is that case's result
        return Trial(text, "error", detail=kernel + sentence(error), launches=tuple(done))
    faults = [f"{one.kernel}: {fault}" for one in done for fault in one.faults(most_spills_bytes)]
    if not done:
        faults = [NO_LAUNCH]
    status = "wrong" if faults else "pass"
    return Trial(text, status, detail="; ".join(faults), launches=tuple(done))  # type: ignore[arg-type]


def sentence(error: BaseException) -> str:
    """The error's own words; where the compiler only says at which line, those of its cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1][-300:] if lines else "no message"
    return f"{type(error).__name__}: {said}"


if __name__ == "__main__":
    sys.exit(serving(_serve))
