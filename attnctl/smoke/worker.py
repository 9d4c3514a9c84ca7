"""The child process of smoke: the only part of the command that imports torch and runs kernels.

Reads one case per line from standard input, writes one JSON line per result. The answers go to a
private copy of file descriptor 1, so that a kernel or a library that prints cannot garble them.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from typing import IO, Any

import msgspec

from attnctl.exits import AbsentError
from attnctl.findings import unmet
from attnctl.processes.lifetime import end_with_parent
from attnctl.smoke.trials import Ready, Status, Trial

ABSENT = ("package_missing", "a library that takes this case")
NO_NUMPY = "Triton's interpreter computes with NumPy, which is not installed: pip install numpy"


def main(arguments: list[str]) -> int:
    """backend, device ("cpu", "cuda:1", "xpu", "interpret", ...), and what is wanted besides.

    "twice" for determinism; "timed=N" to time what passes, N bytes being in the last-level cache.

    Or "import" and names of backends: answers for each whether its kernels can be imported.
    """
    answers = private_answers()
    if arguments[0] == "import":
        _import_each(arguments[1:], answers)
        return 0
    (backend, device), more = arguments[:2], arguments[2:]
    cache = next((int(one.partition("=")[2]) for one in more if one.startswith("timed=")), None)
    _settle(device, alone=cache is not None)
    if device == "interpret" and find_spec("numpy") is None:
        say(answers, Ready(ok=False, detail=NO_NUMPY))
        return 1
    try:
        _serve(backend, device, answers, twice="twice" in more, cache_bytes=cache)
    except Exception as error:  # the parent turns it into a sentence
        say(answers, Ready(ok=False, detail=f"{type(error).__name__}: {error}"))
        return 1
    return 0


def _settle(device: str, *, alone: bool) -> None:
    """What torch and triton read of the environment when they are imported."""
    if not alone:
        # small cases side by side: threads that spin while they wait take the others' processors
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        # nor a pool of compilers in each worker for kernels that come one at a time
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if device == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"
        # the interpreter is one thread of Python: others of torch would only wait beside it
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def private_answers() -> IO[bytes]:
    """The stream of answers; from here on what is printed goes to standard error.

    Also sees to it that this process ends with its parent.
    """
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    end_with_parent()
    return answers


def _import_each(backends: list[str], answers: IO[bytes]) -> None:
    from attnctl.runtime import open_backend

    for name in backends:
        try:
            open_backend(name)
            say(answers, Ready(ok=True))
        except Exception as error:  # its level is then lower, which is what is asked
            say(answers, Ready(ok=False, detail=f"{type(error).__name__}: {error}"))


def _serve(
    backend: str, device: str, answers: IO[bytes], *, twice: bool, cache_bytes: int | None
) -> None:
    import torch

    from attnctl.perf.noting import Noting
    from attnctl.runtime import open_backend

    runtime = open_backend(backend) if cache_bytes is None else Noting(open_backend(backend))
    if device == "interpret":
        from attnctl.kernels.interpreter_checks import interpreter_fault

        if fault := interpreter_fault():
            say(answers, Ready(ok=False, detail=fault))
            return
    place = "cpu" if device in ("cpu", "interpret") else device
    version = str(torch.__version__)
    note = _built(runtime, answers) if device == "cpu" else ""
    say(answers, Ready(ok=True, detail=f"torch {version}", torch=version))
    for line in sys.stdin:
        text = line.strip()
        start = time.perf_counter()
        try:
            trial = _tried(runtime, text, place, twice)
            if cache_bytes is not None and trial.status == "pass":
                from attnctl.perf.clock import timing_of

                found = timing_of(runtime, place, cache_bytes)
                trial = msgspec.structs.replace(trial, timing=found)
        except AbsentError as error:  # of a version, where another takes other cases
            trial = Trial(text, "unsupported", reasons=(unmet(*ABSENT, str(error)),))
        except Exception as error:  # one case's error is that case's result
            trial = Trial(text, "error", 0.0, f"{type(error).__name__}: {error}"[:2000])
        seconds = time.perf_counter() - start
        say(answers, msgspec.structs.replace(trial, seconds=seconds, note=note))
        note = ""


def _built(runtime: Any, answers: IO[bytes]) -> str:
    """Builds the C++ kernels before any case's time begins; what stands in where there are none."""
    if not hasattr(runtime, "finding"):
        return ""
    say(answers, Ready(ok=True, building=True))
    found = runtime.finding()
    if found.met:
        return ""
    return f"computed in plain torch, not by its C++ kernels: {found.found} [{found.fix}]"


def _tried(runtime: Any, text: str, place: str, twice: bool) -> Trial:
    from attnctl.ops.case import split_case
    from attnctl.ops.catalog import case_of, try_case
    from attnctl.ops.compare import same_again

    case = case_of(*split_case(text))
    comparison = try_case(runtime, case, place)
    if twice and comparison.verdict == "pass":
        comparison = same_again(comparison, try_case(runtime, case, place))
    status: Status = "pass" if comparison.verdict == "pass" else "wrong"
    return Trial(text, status, 0.0, comparison.detail, comparison)


def say(answers: IO[bytes], value: msgspec.Struct) -> None:
    """Writes one answer, a line of JSON."""
    answers.write(msgspec.json.encode(value) + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
