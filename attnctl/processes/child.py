"""A child process that answers by the line, whatever it prints and however it ends: no torch."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from attnctl.processes.lifetime import PARENT, end_tree

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
    return {**kept, "PYTHONSAFEPATH": "1", PARENT: str(os.getpid())}


def _folder() -> str | None:
    """Where a child stands: its parent's folder, or the root where that one was removed.

    Libraries that look for their own files from the current folder end the process without one.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        return os.sep
    return None


class Worker:
    """One child process. Use as a context manager: it is ended however the block is left."""

    def __init__(self, *arguments: str, module: str = "attnctl.smoke.worker") -> None:
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
            cwd=_folder(),
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
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        if self._log_read >= 0:
            os.close(self._log_read)
            self._log_read = -1

    def kill(self) -> None:
        """Kills the child and everything that it started; whoever waits for it sees it die."""
        end_tree(self._process.pid)

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
