"""The parent of workers: sends cases, ends what hangs, restarts what died. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from attnctl.processes.child import Worker
from attnctl.smoke.trials import Ready, Trial

START_LIMIT_S = 120.0
BUILD_LIMIT_S = 600.0
"""Of the C++ kernels, each of which takes half a minute where others compute too."""


def try_cases(
    backend: str,
    device: str,
    cases: Iterable[str],
    timeout_s: float,
    *,
    twice: bool = False,
    cache_bytes: int | None = None,
) -> Iterator[Trial]:
    """A Trial per case, in order. A case that hangs or kills the worker costs that case alone.

    twice: each case is run again on the same inputs and must give the same bits. cache_bytes: of
    the device's last-level cache, where what passes is to be timed; None: nothing is.
    """
    timed = () if cache_bytes is None else (f"timed={cache_bytes}",)
    words = (backend, device, *(("twice",) if twice else ()), *timed)
    return answers(lambda: Worker(*words), cases, timeout_s)


def importable(backends: Sequence[str]) -> frozenset[str]:
    """Those of the backends whose kernels a child can import."""
    found = set()
    with Worker("import", *backends) as worker:
        for name in backends:
            try:
                line = worker.line(START_LIMIT_S)
            except EOFError:  # one of them ended the child: those after it are not known to
                break
            if line is None:
                break
            if msgspec.json.decode(line, type=Ready).ok:
                found.add(name)
    return frozenset(found)


def answers(
    make: Callable[[], Worker],
    lines: Iterable[str],
    timeout_s: float,
    ready: Callable[[Ready], None] = lambda said: None,
) -> Iterator[Trial]:
    """A Trial per line, in order, from workers that are made as they are needed.

    ready: told what each worker says of itself.
    """
    worker: Worker | None = None
    refused = ""
    try:
        for text in lines:
            if worker is None and not refused:
                worker, said = start(make)
                refused = said.detail if worker is None else ""
                ready(said)
            if worker is None:
                yield Trial(text, "error", 0.0, refused)
                continue
            trial, alive = _try(worker, text, timeout_s)
            if not alive:
                worker.end()
                worker = None
            yield trial
    finally:
        if worker is not None:
            worker.end()


def start(make: Callable[[], Worker]) -> tuple[Worker | None, Ready]:
    worker = make()
    try:
        said = _said(worker)
    except BaseException:  # an interrupt while it imports, which takes seconds
        worker.end()
        raise
    if said.ok:
        return worker, said
    worker.end()
    return None, said


def _said(worker: Worker) -> Ready:
    """What a new worker says of itself; where it cannot serve, why, in a sentence."""
    try:
        line, limit_s = worker.line(START_LIMIT_S), START_LIMIT_S
        said = None if line is None else msgspec.json.decode(line, type=Ready)
        if said is not None and said.building:
            line, limit_s = worker.line(BUILD_LIMIT_S), BUILD_LIMIT_S
            said = None if line is None else msgspec.json.decode(line, type=Ready)
        if said is None:
            return Ready(False, f"the worker was not ready after {limit_s:.0f} s")
    except (EOFError, msgspec.MsgspecError):
        return Ready(False, f"the worker ended before it was ready, {worker.death()}")
    return said if said.ok else Ready(False, f"the worker could not start: {said.detail}")


def _try(worker: Worker, text: str, timeout_s: float) -> tuple[Trial, bool]:
    """The result, and whether the worker is still good for another case."""
    start = time.monotonic()
    worker.send(text)
    try:
        line = worker.line(timeout_s)
    except EOFError:
        return Trial(text, "crashed", time.monotonic() - start, worker.death()), False
    if line is None:
        return Trial(text, "timeout", timeout_s, f"no answer after {timeout_s:g} s"), False
    try:
        return msgspec.json.decode(line, type=Trial), True
    except msgspec.MsgspecError as error:
        return Trial(text, "error", time.monotonic() - start, f"garbled answer: {error}"), False
