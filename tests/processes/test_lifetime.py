"""Children end with their parent and with what interrupts it, and so does what they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from attnctl.processes.child import Worker
from attnctl.processes.lifetime import PARENT, end_with_parent
from attnctl.processes.side_by_side import side_by_side
from attnctl.processes.unwinding import ended_by_signals
from tests.commands.running import ROOT
from tests.faults.signals import SOON_S, gone, until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
LONG_S = 600


def child() -> None:
    """What the tests start: it ends with its parent, and has a child in a session of its own."""
    end_with_parent()
    started = subprocess.Popen(SLEEP, start_new_session=True)
    print(started.pid, flush=True)
    time.sleep(LONG_S)


def parent() -> None:
    """Starts the child, says who both are, and waits until it is killed."""
    worker = Worker(module="tests.processes.test_lifetime")
    line = worker.line(60)
    print(worker._process.pid, *(line or b"").decode().split(), flush=True)
    time.sleep(LONG_S)


def program(*words: str, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", __name__, *words]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})}
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=variables)


def ended_soon(*pids: int) -> None:
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    until(lambda: gone(processes), "their end", SOON_S)


def test_what_a_child_started_ends_with_the_parent_of_both() -> None:
    """A compiler, say, that the child waits for: a kill of the parent tells neither."""
    with program("parent") as started:
        assert started.stdout is not None
        child_pid, grandchild_pid = map(int, started.stdout.readline().split())
        started.kill()
        ended_soon(child_pid, grandchild_pid)


def test_a_child_whose_parent_was_gone_before_it_began_ends_too() -> None:
    """It is told whose it is: whoever has adopted it meanwhile would never end."""
    over = subprocess.Popen([sys.executable, "-c", ""])
    over.wait()
    with program("child", environ={PARENT: str(over.pid)}) as started:
        assert started.wait(timeout=60) == -signal.SIGKILL


def test_an_interrupted_block_ends_the_children_of_its_threads_and_no_others() -> None:
    """One that was there before stays: a shell's job, where the shell became this program."""
    before = subprocess.Popen(SLEEP)
    codes = []

    def stream() -> Iterator[int]:
        with subprocess.Popen(SLEEP) as worker:
            try:
                yield 1
            finally:
                codes.append(worker.wait())

    def interrupted() -> None:
        with ended_by_signals():
            for _ in side_by_side([stream()]):
                raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        until(lambda: bool(codes), "the end of the worker")
        assert codes == [-signal.SIGKILL]
        assert before.poll() is None
    finally:
        before.kill()
        before.wait()


def test_a_block_that_ends_well_ends_nothing() -> None:
    """What it started and meant to leave is left."""
    with ended_by_signals():
        started = subprocess.Popen(SLEEP)
    assert started.poll() is None
    started.kill()
    started.wait()


def test_streams_that_are_left_early_take_no_further_step() -> None:
    """A thread whose child was killed would else start another one."""
    steps = []
    closed = []

    def stream() -> Iterator[int]:
        try:
            for number in range(1000):
                steps.append(number)
                yield number
                time.sleep(0.05)
        finally:
            closed.append(True)

    for _ in side_by_side([stream()]):
        break
    until(lambda: bool(closed), "the end of the stream")
    assert len(steps) < 10


if __name__ == "__main__":
    {"child": child, "parent": parent}[sys.argv[1] if len(sys.argv) > 1 else "child"]()
