"""Candidates as they run in a child: their runtimes, and what becomes of their errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from attnctl.runtime import open_backend
from attnctl.tune.exchange import Candidate, Verdict
from attnctl.tune.settings import tuned

DETAIL = 600


def runtime_of(candidate: Candidate) -> Any:
    """The candidate's backend with its knobs."""
    return tuned(open_backend(candidate.backend), candidate.knobs, candidate.kernel)


def order_of(runtime: Any) -> tuple[int, ...] | None:
    """The order of the cache's dimensions in memory that the backend likes best."""
    asked = getattr(runtime, "cache_stride_order", None)
    return None if asked is None else tuple(asked())


def judged(check: Callable[[], Any], device: torch.device) -> Verdict:
    """What a comparison says, or the error that came instead of one."""
    try:
        found = check()
    except Exception as error:
        return raised(error, device)
    if found.verdict == "pass":
        return Verdict()
    return Verdict(fault="wrong", detail=f"{found.verdict}: {found.detail}"[:DETAIL])


def raised(error: Exception, device: torch.device) -> Verdict:
    """What an error of a candidate makes of it; ends this process where the device is broken.

    After an illegal access a GPU serves this process no more: the parent starts another.
    """
    if device.type == "cuda":
        try:
            torch.cuda.synchronize()
        except Exception as broken:
            sys.stderr.write(f"{words(broken)}\n")
            sys.stderr.flush()
            os._exit(1)
    return Verdict(fault="error", detail=words(error))


def words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:DETAIL]
