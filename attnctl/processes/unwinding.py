"""Signals that let a block unwind, so that what it started ends with it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP unwind the block, so that its workers end with it.

    A signal that the caller ignores or handles (nohup, a service) is left alone.
    """
    kept = [number for number in (signal.SIGTERM, signal.SIGHUP) if _is_default(number)]
    for number in kept:
        signal.signal(number, _unwind)
    try:
        yield
    finally:
        for number in kept:
            signal.signal(number, signal.SIG_DFL)


def _is_default(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL


def _unwind(number: int, _: object) -> None:
    raise SystemExit(128 + number)
