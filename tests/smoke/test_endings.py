"""A smoke run that is ended from outside leaves no worker behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parent.parent.parent
PLUGINS = ROOT / "tests" / "plugins"
HANGING = "paged(queries=4+1,contexts=20+33,window=7)"
SMOKE = ("-m", "attnctl", "smoke", "--backend", "HANGS", "--case", HANGING)
# starts a worker, gives it a case that never ends, and is gone without a word to it
DESERTER = f"""
import os, time
from attnctl.run import Worker
worker = Worker("HANGS", "cpu")
assert worker.line(300) is not None
worker.send({HANGING!r})
assert worker.line(2) is None
print(worker._process.pid, flush=True)
os._exit(0)
"""


def started(*words: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(PLUGINS), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    # a shell's background job ignores the interrupt, and so would its children: one that is
    # handled here is back at its default in the child
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, kept)


def worker_of(parent: subprocess.Popen[str]) -> psutil.Process:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for child in psutil.Process(parent.pid).children():
            if "attnctl.worker" in child.cmdline():
                return child
        time.sleep(0.05)
    raise AssertionError("no worker was started")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_ends_the_worker_too(number: signal.Signals, code: int) -> None:
    """The exit code is the shell's for that signal, nothing is printed, and the child is gone."""
    with started(*SMOKE) as parent:
        worker = worker_of(parent)
        parent.send_signal(number)
        out, err = parent.communicate(timeout=60)
    assert (parent.returncode, out, err) == (code, "", "")
    assert gone(worker.pid)


def test_a_worker_ends_when_its_parent_was_killed() -> None:
    """A kill cannot be caught, and the case that hangs would last for ever."""
    with started("-c", DESERTER) as parent:
        out, err = parent.communicate(timeout=300)
    assert err == ""
    assert gone(int(out))


def gone(pid: int) -> bool:
    """Whether a process ends within half a minute: a worker asks now and then for its parent."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            # one that has ended, and that nobody has waited for yet, runs no more
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.1)
    return False


def test_an_interpreter_without_numpy_is_one_sentence() -> None:
    """Triton's interpreter needs it, and torch and Triton are installed without it."""
    text = (
        "import sys; sys.modules['numpy'] = None; from attnctl.worker import main;"
        "sys.exit(main(['TRITON_ATTN', 'interpret']))"
    )
    words = [sys.executable, "-c", text]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "NumPy, which is not installed: pip install numpy" in ended.stdout
