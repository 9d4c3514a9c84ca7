"""Signals that let a block unwind, so that what it started ends with it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from attnctl.processes.lifetime import end_tree


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP unwind the block, and ends what it started with it.

    A signal that the caller ignores or handles (nohup, a service) is left alone.
    """
    kept = [number for number in (signal.SIGTERM, signal.SIGHUP) if _is_default(number)]
    for number in kept:
        signal.signal(number, _unwind)
    try:
        with _children_end():
            yield
    finally:
        for number in kept:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _children_end() -> Iterator[None]:
    """Ends the children of threads that an interrupt or an error leaves waiting for them."""
    import psutil

    here = psutil.Process()
    before = set(here.children())  # of a shell that became this program
    try:
        yield
    except BaseException:
        for one in set(here.children()) - before:
            end_tree(one.pid)
        raise


def _is_default(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL


def _unwind(number: int, _: object) -> None:
    raise SystemExit(128 + number)
