"""Processes that end together: a child with its parent, and with it all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from threading import Thread

PARENT = "ATTNCTL_PARENT_PID"
"""The variable that tells a child whose it is: its parent may be gone before it can ask."""

PARENT_CHECK_S = 0.5


def end_with_parent() -> None:
    """Sees to it that this process ends, with all that it started, once its parent is gone.

    A kernel that hangs would outlive a kill, and so would a compiler that this process waits for.
    """
    named = os.environ.get(PARENT, "")
    parent = int(named) if named.isdecimal() else os.getppid()
    Thread(target=_watch, args=(parent, os.getppid()), daemon=True).start()


def end_tree(pid: int) -> None:
    """Kills a process and all that it started, those that left its process group too."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (*parent.children(recursive=True), parent):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _watch(parent: int, between: int) -> None:
    """between: the parent, or a program that stands before the interpreter and waits for it."""
    while os.getppid() == between and _exists(parent):
        time.sleep(PARENT_CHECK_S)
    try:
        end_tree(os.getpid())
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it became another user's
        return True
    return True
