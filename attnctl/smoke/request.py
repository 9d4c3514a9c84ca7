"""What a user asks of smoke, in the words of the command line, and what makes no run."""

from __future__ import annotations

import msgspec

from attnctl.exits import InputError

LONGEST_CASE_S = 86_400.0
"""A day: the system's timers take no number much larger."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for, in the words of the command line."""

    every: bool = False
    backends: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    model: str | None = None
    device: str | None = None
    quick: bool = False
    twice: bool = False
    timeout_s: float | None = None
    listing: bool = False
    perf: bool = False
    slower_percent: float | None = None
    targets: str | None = None
    baseline: str | None = None
    most_spills_bytes: int | None = None
    every_knob: bool = False
    journal: str | None = None
    jobs: int | None = None


def refuse(request: Request) -> None:
    """InputError where the options contradict each other or leave out what a run needs."""
    if request.every and request.backends:
        raise InputError("smoke: --all and --backend name different runs: leave out one of them")
    named = request.every or request.backends or request.targets is not None
    if not named and not request.listing:
        raise InputError("smoke: name a --backend, or say --all for every one with kernels")
    if request.timeout_s is not None and not 0 < request.timeout_s <= LONGEST_CASE_S:
        raise InputError(  # not-a-number is refused too
            f"--timeout {request.timeout_s:g}: must be more than 0 and at most "
            f"{LONGEST_CASE_S:g} seconds"
        )
    if request.cases and request.model is not None:
        raise InputError("smoke: --case and --model name different cases: leave out one of them")
    _refuse_mixed(request)
    _refuse_baseline(request)


def _refuse_mixed(request: Request) -> None:
    """InputError for an option of a compilation in a run, and the other way round."""
    compiling = request.targets is not None
    for option, given, wants in (
        ("--spills", request.most_spills_bytes is not None, True),
        ("--every-knob", request.every_knob, True),
        ("--jobs", request.jobs is not None, True),
        ("--device", request.device is not None, False),
        ("--determinism", request.twice, False),
        ("--perf", request.perf, False),
    ):
        if given and compiling is not wants:
            word = "needs --compile-for" if wants else "does not go with --compile-for"
            raise InputError(f"smoke: {option} {word}: compiled kernels are not run")
    if request.most_spills_bytes is not None and request.most_spills_bytes < 0:
        raise InputError(f"--spills {request.most_spills_bytes}: must be 0 or more bytes")
    if request.journal is not None and not request.every_knob:
        raise InputError("smoke: --journal needs --every-knob: other runs are short")
    if request.jobs is not None and not 1 <= request.jobs <= 64:
        raise InputError(f"--jobs {request.jobs}: must be from 1 to 64 children")


def _refuse_baseline(request: Request) -> None:
    """InputError for a comparison of a run in which nothing can be compared."""
    if request.baseline is not None and not request.perf and request.targets is None:
        raise InputError("smoke: --baseline needs --compile-for or --perf: it compares such runs")
    if request.slower_percent is None:
        return
    if request.baseline is None or not request.perf:
        raise InputError("smoke: --slower needs --perf and --baseline: it is for comparing times")
    if not 0 <= request.slower_percent <= 1000:
        raise InputError(f"--slower {request.slower_percent:g}: must be 0 to 1000 percent")
