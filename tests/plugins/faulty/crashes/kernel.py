"""Planted for a test of smoke."""

from __future__ import annotations

import os
import signal
from typing import Any

from faulty.reference import Reference


class Crashes(Reference):
    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        if params.window is not None:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().forward(query, cache, metadata, params, out)


RUNTIME = Crashes()
