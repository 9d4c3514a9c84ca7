"""The parent of the worker: sends cases, ends what hangs, restarts what died. Imports no torch."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from attnctl.trials import Ready, Trial

START_LIMIT_S = 120.0
BUILD_LIMIT_S = 600.0
"""Of the C++ kernels, each of which takes half a minute where others compute too."""
LINE_LIMIT_BYTES = 1 << 20
TAIL_BYTES = 4000
READS = 64


_START = (
    "import sys; path = {path!r}; "
    "sys.path[:] = path + [x for x in sys.path if x and x not in path]; import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
"""A child imports from where its parent does, and nothing that lies in the folder they stand in:
a torch.py there, or a checkout of torch, is not the torch of this environment."""


def _environment() -> dict[str, str]:
    """The parent's, without a wish that kernels be interpreted: a child says so where it does."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    # what a child starts (torch's compile workers) must not look there either
    return {**kept, "PYTHONSAFEPATH": "1"}


class Worker:
    """One child process. Use as a context manager: it is ended however the block is left."""

    def __init__(self, *arguments: str, module: str = "attnctl.worker") -> None:
        self._log_read, log_write = os.pipe()
        os.set_blocking(self._log_read, False)
        self._buffer = b""
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _START.format(path=list(map(str, sys.path))),
                module,
                *arguments,
            ],
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_write,
            start_new_session=True,
        )
        os.close(log_write)
        self._log = b""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends the child and everything that it started."""
        _end_tree(self._process.pid)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        if self._log_read >= 0:
            os.close(self._log_read)
            self._log_read = -1

    def send(self, text: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it died; the read that follows says so

    def line(self, limit_s: float) -> bytes | None:
        """The next line; None: the time is over. EOFError: the child is gone."""
        assert self._process.stdout is not None
        until = time.monotonic() + limit_s
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            readable = select.select([descriptor, self._log_read], [], [], max(0.0, left))[0]
            self._drain()
            if descriptor in readable:
                chunk = os.read(descriptor, 65536)
                if not chunk or len(self._buffer) > LINE_LIMIT_BYTES:
                    raise EOFError
                self._buffer += chunk
            elif left <= 0:
                return None
        found, _, self._buffer = self._buffer.partition(b"\n")
        return found

    def _drain(self) -> None:
        """Keeps the end of what the child printed, so that a flood neither blocks nor grows.

        A child may print faster than it is read: after some reads its limits are looked at again.
        """
        for _ in range(READS):
            try:
                chunk = os.read(self._log_read, 65536)
            except BlockingIOError:
                return
            if not chunk:
                return
            self._log = (self._log + chunk)[-TAIL_BYTES:]

    def death(self) -> str:
        """How the child ended, with the last line that it printed."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "its output closed and it did not end"
        self._drain()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        words = [line for line in self._log.decode("utf-8", "replace").splitlines() if line.strip()]
        return f"{how}: {words[-1].strip()[:300]}" if words else how


def _end_tree(pid: int) -> None:
    """Kills a process and all that it started, those that left its process group too."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (*parent.children(recursive=True), parent):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


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
